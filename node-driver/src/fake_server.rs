//! An in-process API server for tests. It stores objects, assigns versions and generated
//! names, refuses stale updates, and records writes.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch::Sender;

/// A change by another client just before a write arrives.
type Interference = Box<dyn FnOnce(&mut Objects) + Send>;

/// The objects by path.
pub(crate) type Objects = BTreeMap<String, Value>;

/// The server. Clones share its state.
#[derive(Clone)]
pub(crate) struct FakeServer {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    collections: Vec<&'static str>,
    objects: Objects,
    version: u64,
    writes: Vec<String>,
    interferences: VecDeque<Interference>,
    /// Past events, for watches.
    events: Vec<Event>,
    /// Tells watches that there are new events.
    news: Sender<()>,
}

/// A change of an object.
#[derive(Clone)]
struct Event {
    version: u64,
    path: String,
    body: Value,
}

/// How long a test waits for an expected state.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub(crate) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
pub(crate) const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
/// The claims of the namespace `team`.
pub(crate) const TEAM_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims";
pub(crate) const TOPOLOGIES: &str = "/apis/topology.dranet.io/v1alpha1/nodetopologies";

impl FakeServer {
    /// A server with one node and the custom resource.
    pub(crate) fn with_node(name: &str) -> Self {
        let server = Self { inner: Arc::default() };
        server.inner().collections = vec![NODES, SLICES, CLAIMS, TEAM_CLAIMS, TOPOLOGIES, EVENTS];
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "n-1"}});
        server.inner().objects.insert(format!("{NODES}/{name}"), node);
        server
    }

    /// Removes the custom resource.
    pub(crate) fn without_topologies(self) -> Self {
        self.inner().collections.retain(|collection| *collection != TOPOLOGIES);
        self
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.router(), "default")
    }

    /// The server's routes, to be served on a socket.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// Returns the writes so far, for example `POST /apis/…`, and clears the list.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().writes)
    }

    /// The objects of a collection.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let inner = self.inner();
        inner
            .objects
            .iter()
            .filter(|(path, _)| is_in(path, collection))
            .map(|(_, v)| v.clone())
            .collect()
    }

    /// Changes objects from outside and notifies watches.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut Objects)) {
        let mut inner = self.inner();
        let before = inner.objects.clone();
        edit(&mut inner.objects);
        let after = inner.objects.clone();
        for (path, object) in &before {
            match after.get(path) {
                None => inner.record("DELETED", path, object.clone()),
                Some(now) if now != object => inner.record("MODIFIED", path, now.clone()),
                Some(_) => {}
            }
        }
        for (path, object) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
            inner.record("ADDED", path, object.clone());
        }
    }

    /// Waits until the objects of a collection satisfy the condition.
    pub(crate) async fn until(&self, collection: &str, wanted: impl Fn(&[Value]) -> bool) {
        let mut news = self.inner().news.subscribe();
        let seen = async {
            while !wanted(&self.objects(collection)) {
                news.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .unwrap_or_else(|_| panic!("{:#?}", self.objects(collection)));
    }

    /// Changes objects just before the next write is handled.
    pub(crate) fn interfere(&self, edit: impl FnOnce(&mut Objects) + Send + 'static) {
        self.inner().interferences.push_back(Box::new(edit));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

fn is_in(path: &str, collection: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parent, _)| parent == collection)
}

async fn handle(
    State(server): State<FakeServer>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let mut inner = server.inner();
    let path = uri.path().to_owned();
    if method != Method::GET {
        if let Some(interfere) = inner.interferences.pop_front() {
            interfere(&mut inner.objects);
        }
        inner.writes.push(format!("{method} {path}"));
    }
    let is_collection = inner.collections.contains(&path.as_str());
    let is_known = inner.collections.iter().any(|collection| is_in(&path, collection));
    let body = serde_json::from_slice(&body).unwrap_or_default();
    match (method, is_collection, is_known) {
        (Method::GET, true, _) if is_watch(&uri) => inner.watch(&uri, server.clone()),
        (Method::GET, true, _) => inner.list(&uri),
        (Method::POST, true, _) => inner.create(&path, body),
        (Method::PUT, false, false) if path.ends_with("/status") => {
            inner.replace_status(path.trim_end_matches("/status"), &body)
        }
        (Method::GET, _, true) => inner.get(&path),
        (Method::PUT, _, true) => inner.replace(&path, body),
        (Method::DELETE, _, true) => inner.delete(&path),
        _ => status(404, "the server could not find the requested resource", &json!({})),
    }
}

/// The value of a query parameter, with the escapes of a field selector resolved.
fn query(uri: &Uri, key: &str) -> Option<String> {
    let query = uri.query()?.replace("%3D", "=").replace("%2C", ",");
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{key}=")));
    pair.map(str::to_owned)
}

fn is_watch(uri: &Uri) -> bool {
    query(uri, "watch").is_some_and(|watch| watch == "true")
}

/// Whether the object matches the field selector.
fn is_selected(uri: &Uri, object: &Value) -> bool {
    let selector = query(uri, "fieldSelector").unwrap_or_default();
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (field, value) = term.split_once('=').unwrap();
        object.pointer(&format!("/{}", field.replace('.', "/"))) == Some(&json!(value))
    })
}

impl Inner {
    /// Gives the object the next version and notifies watches.
    fn record(&mut self, kind: &str, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind != "DELETED" {
            self.objects.insert(path.to_owned(), object.clone());
        }
        let body = json!({"type": kind, "object": object});
        self.events.push(Event { version: self.version, path: path.to_owned(), body });
        self.news.send_replace(());
    }

    /// Events after a version, past and future, as a stream.
    fn watch(&self, uri: &Uri, server: FakeServer) -> Response {
        let seen: u64 =
            query(uri, "resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
        let (uri, news) = (uri.clone(), self.news.subscribe());
        let lines = stream::unfold((seen, news), move |(seen, mut news)| {
            let (server, uri) = (server.clone(), uri.clone());
            async move {
                loop {
                    let lines = server.inner().since(seen, &uri);
                    if let Some((version, lines)) = lines {
                        return Some((Ok::<_, Infallible>(lines), (version, news)));
                    }
                    news.changed().await.ok()?;
                }
            }
        });
        Response::new(Body::from_stream(lines))
    }

    /// Events after a version, one per line, and the version of the last one.
    fn since(&self, seen: u64, uri: &Uri) -> Option<(u64, String)> {
        let new = self.events.iter().filter(|event| event.version > seen);
        let new: Vec<_> = new
            .filter(|event| {
                is_in(&event.path, uri.path()) && is_selected(uri, &event.body["object"])
            })
            .collect();
        let last = new.last()?.version;
        let lines: Vec<String> = new.iter().map(|event| event.body.to_string() + "\n").collect();
        Some((last, lines.concat()))
    }

    fn list(&self, uri: &Uri) -> Response {
        let objects = self.objects.iter().filter(|(path, _)| is_in(path, uri.path()));
        let items: Vec<_> =
            objects.map(|(_, object)| object).filter(|object| is_selected(uri, object)).collect();
        let version = self.version.to_string();
        let list =
            json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items});
        axum::Json(list).into_response()
    }

    fn get(&self, path: &str) -> Response {
        self.objects
            .get(path)
            .map_or_else(|| absent(path), |object| axum::Json(object).into_response())
    }

    fn create(&mut self, collection: &str, mut object: Value) -> Response {
        self.version += 1;
        let metadata = &mut object["metadata"];
        let generated =
            metadata["generateName"].as_str().map(|prefix| format!("{prefix}{:05}", self.version));
        let name = metadata["name"].as_str().map(str::to_owned).or(generated).unwrap();
        metadata["name"] = json!(name);
        metadata["uid"] = json!(format!("uid-{}", self.version));
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return status(409, "already exists", &json!({"name": name}));
        }
        self.record("ADDED", &path, object);
        (StatusCode::CREATED, axum::Json(&self.objects[&path])).into_response()
    }

    fn replace(&mut self, path: &str, object: Value) -> Response {
        let Some(there) = self.objects.get(path) else { return absent(path) };
        if there["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return status(409, "the object has been modified", &json!({}));
        }
        self.record("MODIFIED", path, object);
        axum::Json(&self.objects[path]).into_response()
    }

    /// Updates the object's status and nothing else.
    fn replace_status(&mut self, path: &str, object: &Value) -> Response {
        let Some(there) = self.objects.get(path) else { return absent(path) };
        let mut object = object.clone();
        object["spec"] = there["spec"].clone();
        self.replace(path, object)
    }

    fn delete(&mut self, path: &str) -> Response {
        let Some(object) = self.objects.remove(path) else { return absent(path) };
        self.record("DELETED", path, object.clone());
        axum::Json(object).into_response()
    }
}

fn absent(path: &str) -> Response {
    let name = path.rsplit('/').next().unwrap_or_default();
    status(404, &format!("\"{name}\" not found"), &json!({"name": name}))
}

fn status(code: u16, message: &str, details: &Value) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "message": message, "details": details,
        "reason": if code == 404 { "NotFound" } else { "Conflict" },
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}
