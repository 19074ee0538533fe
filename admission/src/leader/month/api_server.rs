//! An API server in memory with a clock of its own: objects by path, versions that refuse late writes, and
//! events for watches.

use axum::http::{Method, Request, Response, header};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tower::service_fn;

/// The server. Clones share its state.
#[derive(Clone, Default)]
pub(super) struct ApiServer(Arc<Mutex<State>>);

/// What a server has.
#[derive(Default)]
pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) objects: BTreeMap<String, Value>,
    version: u64,
    /// Changes that not all replicas have seen, and how many were dropped before them.
    events: Vec<Change>,
    dropped: usize,
    /// Templates that were deleted while a pod or a claim referred to them.
    pub(super) lost: Vec<String>,
}

/// A change of an object.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) is_deleted: bool,
    pub(super) object: Value,
}

impl ApiServer {
    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let mut state = server.lock();
                let (code, answer) =
                    state.answer(&head.method, head.uri.path(), head.uri.query(), body);
                let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&state.now).unwrap();
                Response::builder()
                    .status(code)
                    .header(header::DATE, date)
                    .body(Body::from(answer.to_string().into_bytes()))
            }
        });
        Client::new(service, "dranet")
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    /// The changes since the given number of them.
    pub(super) fn since(&self, seen: usize) -> (usize, Vec<Change>) {
        (self.dropped + self.events.len(), self.events[seen - self.dropped..].to_vec())
    }

    /// Drops the changes that all have seen.
    pub(super) fn drop_before(&mut self, seen: usize) {
        self.events.drain(..seen - self.dropped);
        self.dropped = seen;
    }

    /// Creates or replaces an object.
    pub(super) fn put(&mut self, path: &str, mut object: Value) -> &Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = self.now.strftime("%FT%TZ").to_string().into();
            metadata["uid"] = format!("{:08x}-0000-4000-8000-000000000000", self.version).into();
        }
        self.events.push(Change { is_deleted: false, object: object.clone() });
        self.objects.insert(path.to_owned(), object);
        &self.objects[path]
    }

    pub(super) fn delete(&mut self, path: &str) {
        if let Some(object) = self.objects.remove(path) {
            self.events.push(Change { is_deleted: true, object });
        }
    }

    /// The objects of a collection.
    pub(super) fn all<'s>(&'s self, collection: &'s str) -> impl Iterator<Item = &'s Value> {
        let of_path = self.objects.iter().filter(move |(path, _)| {
            path.rsplit_once('/').is_some_and(|(parent, _)| parent == collection)
        });
        of_path.map(|(_, object)| object)
    }

    /// Whether a pod, or a claim, refers to a template.
    pub(super) fn is_used(&self, namespace: &str, template: &str) -> bool {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let claims = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
        self.all(&pods).any(|pod| {
            let mut claims = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
            claims.any(|claim| claim["resourceClaimTemplateName"] == template)
        }) || self
            .all(&claims)
            .any(|claim| claim["metadata"]["labels"]["dranet.io/template"] == template)
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        body: Value,
    ) -> (u16, Value) {
        let there = self.objects.get(path).cloned();
        match (method, there) {
            (&Method::GET, _) if path == "/version" => (200, json!({})),
            (&Method::GET, Some(object)) => (200, object),
            (&Method::GET, None) if is_collection(path) => (200, self.list(path, query)),
            (&Method::POST, _) => self.create(path, body),
            (&Method::PUT, Some(there)) => {
                let seen = &body["metadata"]["resourceVersion"];
                if *seen == there["metadata"]["resourceVersion"] {
                    (200, self.put(path, body).clone())
                } else {
                    refusal(409, "Conflict")
                }
            }
            (&Method::PATCH, Some(there)) => self.patch(path, &there, &body),
            (&Method::DELETE, Some(there)) => {
                let seen = &body["preconditions"]["resourceVersion"];
                if !seen.is_null() && *seen != there["metadata"]["resourceVersion"] {
                    return refusal(409, "Conflict");
                }
                let metadata = &there["metadata"];
                let [namespace, name] =
                    ["namespace", "name"].map(|key| metadata[key].as_str().unwrap_or_default());
                if path.contains("/resourceclaimtemplates/") && self.is_used(namespace, name) {
                    self.lost.push(path.to_owned());
                }
                self.delete(path);
                (200, there)
            }
            _ => refusal(404, "NotFound"),
        }
    }

    fn create(&mut self, collection: &str, mut object: Value) -> (u16, Value) {
        if collection.ends_with("/events") {
            return (201, object);
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return refusal(409, "AlreadyExists");
        }
        if let Some((_, rest)) = collection.split_once("/namespaces/") {
            object["metadata"]["namespace"] = rest.split('/').next().into();
        }
        if collection.ends_with("/resourceclaimtemplates") {
            object["kind"] = "ResourceClaimTemplate".into();
        }
        (201, self.put(&path, object).clone())
    }

    /// A merge patch; lists of webhooks are merged by name, as strategic patches are.
    fn patch(&mut self, path: &str, there: &Value, change: &Value) -> (u16, Value) {
        let seen = &change["metadata"]["resourceVersion"];
        if !seen.is_null() && *seen != there["metadata"]["resourceVersion"] {
            return refusal(409, "Conflict");
        }
        let mut changed = there.clone();
        json_patch::merge(&mut changed, change);
        if let Some(hooks) = there["webhooks"].as_array() {
            let mut hooks = hooks.clone();
            for own in change["webhooks"].as_array().into_iter().flatten() {
                let same = hooks.iter_mut().filter(|hook| hook["name"] == own["name"]);
                same.for_each(|hook| json_patch::merge(hook, own));
            }
            changed["webhooks"] = hooks.into();
        }
        (200, self.put(path, changed).clone())
    }

    fn list(&self, collection: &str, query: Option<&str>) -> Value {
        let query = query.unwrap_or_default().replace("%3D", "=").replace("%2F", "/");
        let parameter = |name: &str| {
            let mut all = query.split('&').filter_map(|pair| pair.split_once('='));
            all.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let (labels, fields) = (parameter("labelSelector"), parameter("fieldSelector"));
        let items = self.all(collection).filter(|object| {
            let has_label = labels.as_deref().is_none_or(|selector| {
                let (key, value) = selector.split_once('=').unwrap();
                object["metadata"]["labels"][key] == value
            });
            has_label
                && fields.as_deref().is_none_or(|selector| {
                    let (field, value) = selector.split_once('=').unwrap();
                    object.pointer(&format!("/{}", field.replace('.', "/"))) == Some(&json!(value))
                })
        });
        let items: Vec<&Value> = items.collect();
        json!({"kind": "List", "metadata": {}, "items": items})
    }
}

fn is_collection(path: &str) -> bool {
    ["pods", "resourceclaims", "resourceclaimtemplates", "resourceslices", "nodes"]
        .iter()
        .any(|kind| path.ends_with(&format!("/{kind}")))
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": reason});
    (code, status)
}
