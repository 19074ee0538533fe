//! A live cluster, read once: the only module with a client and a runtime.

use crate::args::UserArgs;
use crate::kinds::{Kind, PODS, Query, Scope};
use crate::progress::Progress;
use crate::reply::{Missing, Probe, Proxied, Verb};
use anyhow::Context as _;
use cluster_model::names::object;
use cluster_model::read;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Error};
use process::args::KubeArgs;
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Longest wait for a pod behind the API server's proxy.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest wait for names to complete, and the most that are read.
const COMPLETION: Duration = Duration::from_secs(3);
const NAMES_MAX: usize = 500;

/// A connection to the API server.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
    /// The address of the API server, and where it is from.
    place: Box<str>,
    progress: RefCell<Progress>,
}

impl Cluster {
    /// Connects as the flags say. The first request is sent when something is read.
    pub(crate) fn connect(args: &KubeArgs, user: &UserArgs) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let user = user.name.as_deref().map(|name| (name, user.groups.as_slice()));
        let (client, place) = runtime.block_on(process::client::connect_as(args, user))?;
        let place = place.to_string().into();
        Ok(Self { runtime, client, place, progress: RefCell::new(Progress::start()) })
    }

    /// Namespace of the kubeconfig's context.
    pub(crate) fn default_namespace(&self) -> String {
        self.client.default_namespace().to_owned()
    }

    /// Waits.
    pub(crate) fn pause(&self, time: Duration) {
        // A timer is made where the runtime runs.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Version of the API server, `v1.37.1`.
    pub(crate) fn version(&self) -> anyhow::Result<String> {
        let version = self.runtime.block_on(self.client.apiserver_version());
        Ok(version
            .with_context(|| {
                format!("failed to read the version of the API server at {}", self.place)
            })?
            .git_version)
    }

    /// The content of the file of drivers that the chart gives to all programs, in whichever namespace
    /// they are installed; `None` if there is none.
    pub(crate) fn drivers(&self) -> anyhow::Result<Result<Option<String>, Missing>> {
        let path = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{}", object::DRIVERS);
        let mut found = None;
        let outcome = self.runtime.block_on(read::each(&self.client, &path, |map| {
            let map: Option<ConfigMap> = serde_json::from_str(map.get()).ok();
            found = map.and_then(|map| map.data?.remove(object::DRIVERS_KEY));
        }));
        match outcome {
            Ok(()) => Ok(Ok(found)),
            Err(Error::Api(status)) if status.code == 403 => Ok(Err(Missing::Right)),
            Err(error) => {
                let what = format!("failed to read the cluster's drivers from {}", self.place);
                Err(error).context(what)
            }
        }
    }

    /// Feature gates of the API server, as its metrics show them
    /// (`k8s.io/component-base/metrics/prometheus/feature`); empty if the user may not read them.
    pub(crate) fn feature_gates(&self) -> BTreeMap<String, bool> {
        let text = self.runtime.block_on(read::text(&self.client, "/metrics"));
        text.map(|text| gates(&text)).unwrap_or_default()
    }

    /// Reads the queried objects one by one.
    pub(crate) fn read(
        &self,
        query: &Query,
        take: &mut dyn FnMut(&RawValue),
    ) -> anyhow::Result<Result<(), Missing>> {
        let mut number = 0;
        let mut progress = self.progress.borrow_mut();
        let mut count = |object: &RawValue| {
            number += 1;
            take(object);
            progress.read(query.kind.plural, number);
        };
        let path = query.path();
        let outcome = match &query.scope {
            Scope::Object { .. } => {
                let found = self.runtime.block_on(read::one(&self.client, &path));
                found.map(|found| found.iter().for_each(|object| count(object)))
            }
            _ => self.runtime.block_on(read::each(&self.client, &path, &mut count)),
        };
        progress.clear();
        match outcome {
            Ok(()) => Ok(Ok(())),
            Err(Error::Api(status)) if status.code == 403 => Ok(Err(Missing::Right)),
            Err(Error::Api(status)) if status.code == 404 => Ok(Err(Missing::Kind)),
            Err(error) => Err(error).with_context(|| {
                format!("failed to read {} from {}", query.kind.resource(), self.place)
            }),
        }
    }

    /// The names of objects of a kind, for completion: none if that takes long or fails.
    pub(crate) fn names(&self, kind: Kind, namespace: Option<&str>) -> Vec<String> {
        let path = format!("{}?limit={NAMES_MAX}", kind.of(namespace, "").path());
        let text = self.runtime.block_on(async {
            tokio::time::timeout(COMPLETION, read::text(&self.client, &path)).await
        });
        let list: Option<Value> =
            text.ok().and_then(Result::ok).and_then(|text| serde_json::from_str(&text).ok());
        let items = list.as_ref().and_then(|list| list["items"].as_array()).into_iter().flatten();
        items.filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned())).collect()
    }

    /// Returns true if the user may list a kind, or if the API server does not have it.
    pub(crate) fn may_list(&self, kind: Kind) -> anyhow::Result<bool> {
        let path = format!("{}?limit=1", kind.all("").path());
        match self.runtime.block_on(read::text(&self.client, &path)) {
            Err(Error::Api(status)) if status.code == 403 => Ok(false),
            Err(Error::Api(status)) if status.code == 404 => Ok(true),
            answer => {
                answer.with_context(|| format!("failed to read {}", kind.resource())).map(|_| true)
            }
        }
    }

    /// Creates a pod as a dry run.
    pub(crate) fn dry_run_pod(&self, namespace: &str, pod: &Value) -> anyhow::Result<Probe> {
        let path = PODS.of(Some(namespace), "").path();
        let request = Request::post(format!("{path}?dryRun=All"))
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(pod)?)?;
        match self.runtime.block_on(self.client.request::<Value>(request)) {
            Ok(pod) => Ok(Probe::Created(Box::new(pod))),
            // RBAC refuses with 403 too, and names no webhook.
            Err(Error::Api(status))
                if status.code == 403 && !status.message.contains("webhook") =>
            {
                Ok(Probe::NoRight)
            }
            Err(Error::Api(status)) => Ok(Probe::Refused(status.message.clone())),
            Err(error) => Err(error).context("failed to create a test pod (dry run)"),
        }
    }

    /// Returns whether a subject has a right, by a `SubjectAccessReview`; `None` if the user may
    /// not create one.
    pub(crate) fn is_allowed(&self, review: &Value) -> anyhow::Result<Option<bool>> {
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(review)?)?;
        match self.runtime.block_on(self.client.request::<Value>(request)) {
            Ok(answer) => Ok(Some(answer["status"]["allowed"] == true)),
            Err(Error::Api(status)) if status.code == 403 => Ok(None),
            Err(error) => Err(error).context("failed to check the rights of a service account"),
        }
    }

    /// The configuration of a node's kubelet, or a note why it is not known.
    pub(crate) fn kubelet_config(&self, node: &str) -> (Option<Value>, Option<String>) {
        let path = format!("/api/v1/nodes/{node}/proxy/configz");
        match self.runtime.block_on(read::text(&self.client, &path)) {
            Ok(text) => {
                let answer: Option<Value> = serde_json::from_str(&text).ok();
                (answer.map(|mut answer| answer["kubeletconfig"].take()), None)
            }
            Err(Error::Api(status)) if status.code == 403 => {
                let right = "you may not get nodes/proxy, so the CPU managers of the kubelets \
                             are not checked";
                (None, Some(right.to_owned()))
            }
            Err(error) => {
                // The text of this error also contains the whole answer.
                let why = match error {
                    Error::Api(status) => status.message,
                    error => error.to_string(),
                };
                (None, Some(format!("the kubelet of node {node} does not answer: {why}")))
            }
        }
    }

    /// What a pod answers through the API server's proxy.
    pub(crate) fn proxied(&self, path: &str) -> Proxied {
        let answer = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, read::text(&self.client, path)).await
        });
        match answer {
            Ok(Ok(text)) => Proxied::Text(text),
            Ok(Err(Error::Api(status))) if status.code == 403 => Proxied::NoRight,
            // Its own text also contains the whole answer.
            Ok(Err(Error::Api(status))) => Proxied::Failed(status.message.clone()),
            Ok(Err(error)) => Proxied::Failed(error.to_string()),
            Err(_) => Proxied::Failed(format!("no answer within {} seconds", PATIENCE.as_secs())),
        }
    }

    /// A pod, in this namespace or in that of the context.
    pub(crate) fn pod(&self, namespace: Option<&str>, name: &str) -> anyhow::Result<Value> {
        let namespace = namespace.unwrap_or_else(|| self.client.default_namespace());
        let path = PODS.one(namespace, name, "").path();
        let pod = self.runtime.block_on(read::one(&self.client, &path));
        let pod = pod.with_context(|| format!("failed to read Pod `{name}` of `{namespace}`"))?;
        let pod =
            pod.with_context(|| format!("found no Pod `{name}` in namespace `{namespace}`"))?;
        Ok(serde_json::from_str(pod.get())?)
    }
}

/// The signals that end a program, once they are caught.
pub(crate) struct Signals([Signal; 2]);

/// A signal asked the program to end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

impl Signals {
    async fn caught(&mut self) -> Interrupted {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        Interrupted
    }
}

impl Cluster {
    /// From now on, Ctrl-C and SIGTERM no longer end the program, but only waits that take these
    /// signals.
    pub(crate) fn catch_signals(&self) -> anyhow::Result<Signals> {
        let _runtime = self.runtime.enter();
        Ok(Signals([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    /// Waits, or fails if a signal arrives.
    pub(crate) fn pause_or_end(&self, signals: &mut Signals, time: Duration) -> anyhow::Result<()> {
        self.until_signal(signals, async { tokio::time::sleep(time).await })
    }

    /// Sends a request about an object; `None` if it does not exist. Fails if a signal arrives.
    pub(crate) fn request_object(
        &self,
        signals: &mut Signals,
        kind: Kind,
        (namespace, name): (&str, &str),
        verb: Verb<'_>,
    ) -> anyhow::Result<Option<Value>> {
        let path = kind.one(namespace, name, "").path();
        let request = match verb {
            Verb::Create(object) => Request::post(kind.of(Some(namespace), "").path())
                .header("Content-Type", "application/json")
                .body(serde_json::to_vec(object)?)?,
            Verb::Evict(eviction) => Request::post(format!("{path}/eviction"))
                .header("Content-Type", "application/json")
                .body(serde_json::to_vec(eviction)?)?,
            Verb::Get => Request::get(path).body(Vec::new())?,
            Verb::Delete => Request::delete(path).body(Vec::new())?,
        };
        let answer = self.until_signal(signals, self.client.request::<Value>(request))?;
        let what = match verb {
            Verb::Create(_) => "create",
            Verb::Evict(_) => "evict",
            Verb::Get => "read",
            Verb::Delete => "delete",
        };
        let outcome = match answer {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.code == 404 && !matches!(verb, Verb::Create(_)) => {
                Ok(None)
            }
            // Its own text also contains the whole answer.
            Err(Error::Api(status)) => Err(anyhow::anyhow!(status.message)),
            Err(error) => Err(anyhow::anyhow!(error)),
        };
        outcome.with_context(|| format!("failed to {what} {} `{name}` of `{namespace}`", kind.name))
    }

    fn until_signal<T>(
        &self,
        signals: &mut Signals,
        work: impl Future<Output = T>,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            tokio::select! {
                done = work => Ok(done),
                interrupted = signals.caught() => Err(interrupted.into()),
            }
        })
    }
}

/// Parses lines such as `kubernetes_feature_enabled{name="A",stage="BETA"} 1`.
fn gates(metrics: &str) -> BTreeMap<String, bool> {
    metrics
        .lines()
        .filter_map(|line| {
            let rest = line.strip_prefix("kubernetes_feature_enabled{")?;
            let (labels, value) = rest.split_once("} ")?;
            let name = labels.split(',').find_map(|label| label.strip_prefix("name=\""))?;
            Some((name.trim_end_matches('"').to_owned(), value.trim() == "1"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_metrics() {
        let text = "# HELP kubernetes_feature_enabled x\n\
                    kubernetes_feature_enabled{name=\"A\",stage=\"BETA\"} 1\n\
                    kubernetes_feature_enabled{name=\"B\",stage=\"\"} 0\nother 1\n";
        let expected = BTreeMap::from([("A".to_owned(), true), ("B".to_owned(), false)]);
        assert_eq!(gates(text), expected);
    }
}
