//! The running extenders, and what they have learned.

use crate::reply::Proxied;
use crate::source::{ReadCluster, Source};
use crate::text::string;
use anyhow::Context as _;
use scheduler_ext::expected::Expected;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;

/// The extender's container (`deploy/chart`).
const CONTAINER: &str = "scheduler-ext";

/// Labels of the project's objects and of their pods.
const PART_OF: &str = "app.kubernetes.io/part-of";
const NAME: &str = "app.kubernetes.io/name";

/// The flag that names the socket of health and metrics.
const OPERATIONS: &str = "--operations-listen=";

/// A running extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtenderPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its socket of health and metrics.
    pub(crate) operations: SocketAddr,
}

/// What the running extender expects: from a file with its metrics, or from the first extender of the
/// cluster that shows them. `None` if none does.
///
/// # Errors
/// The file cannot be read, or has no metrics of an extender.
pub(crate) fn expected(
    metrics: Option<&Path>,
    source: &Source,
    seen: &ReadCluster,
) -> anyhow::Result<Option<Expected>> {
    if let Some(path) = metrics {
        let place = path.display();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("failed to read {place}"))?;
        let expected = Expected::of_metrics(&text).with_context(|| {
            format!(
                "{place} does not say which pods scheduler-ext expects: save the whole text of its \
                 page `/metrics`"
            )
        })?;
        return Ok(Some(expected));
    }
    let Source::Live(cluster) = source else { return Ok(None) };
    let paths = pods(seen).into_iter().filter_map(|pod| pod.metrics_path());
    Ok(paths.map(|path| cluster.proxied(&path)).find_map(|answer| match answer {
        Proxied::Text(text) => Expected::of_metrics(&text),
        Proxied::Failed(_) | Proxied::NoRight => None,
    }))
}

/// The running extenders. Pods are read without flags, so flags come from their workloads.
pub(crate) fn pods(seen: &ReadCluster) -> Vec<ExtenderPod> {
    let workloads = seen.of_kind("Deployment").chain(seen.of_kind("DaemonSet"));
    let workloads: Vec<_> = workloads.filter_map(|it| Some((it, operations(it)?))).collect();
    let pods = workloads.iter().flat_map(|(workload, operations)| {
        let pods = seen.of_kind("Pod").filter(|pod| runs_for(pod, workload));
        pods.map(|pod| extender(pod, *operations))
    });
    pods.collect()
}

/// The socket of health and metrics of the extenders of a workload.
fn operations(workload: &Value) -> Option<SocketAddr> {
    let is_ours = workload["metadata"]["labels"][PART_OF] == "dranet";
    let containers = &workload["spec"]["template"]["spec"]["containers"];
    let mut containers = containers.as_array().filter(|_| is_ours)?.iter();
    let container = containers.find(|it| it["name"] == CONTAINER)?;
    let mut words = container["args"].as_array()?.iter().filter_map(Value::as_str);
    words.find_map(|word| word.strip_prefix(OPERATIONS))?.parse().ok()
}

fn runs_for(pod: &Value, workload: &Value) -> bool {
    let (pod_metadata, metadata) = (&pod["metadata"], &workload["metadata"]);
    pod["status"]["phase"] == "Running"
        && pod_metadata["namespace"] == metadata["namespace"]
        && [PART_OF, NAME]
            .into_iter()
            .all(|label| pod_metadata["labels"][label] == metadata["labels"][label])
}

fn extender(pod: &Value, operations: SocketAddr) -> ExtenderPod {
    let metadata = &pod["metadata"];
    let (namespace, name) = (string(&metadata["namespace"]), string(&metadata["name"]));
    ExtenderPod { namespace, name, operations }
}

impl ExtenderPod {
    /// Path of its metrics at the API server; `None` if they are on loopback.
    pub(crate) fn metrics_path(&self) -> Option<String> {
        let Self { namespace, name, operations } = self;
        let port = operations.port();
        (!operations.ip().is_loopback())
            .then(|| format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels() -> Value {
        json!({
            "app.kubernetes.io/part-of": "dranet",
            "app.kubernetes.io/name": "dranet-scheduler",
        })
    }

    fn workload(operations: &str) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {
                "namespace": "dranet-system", "name": "dranet-scheduler", "labels": labels(),
            },
            "spec": { "template": { "spec": { "containers": [
                { "name": "kube-scheduler", "command": ["kube-scheduler"] },
                { "name": "scheduler-ext", "args": ["--listen=127.0.0.1:8443", operations] },
            ] } } },
        })
    }

    #[test]
    fn extenders_are_found_with_their_metrics_path() {
        let pod = json!({
            "kind": "Pod",
            "metadata": {
                "namespace": "dranet-system", "name": "dranet-scheduler-a", "labels": labels(),
            },
            "status": { "phase": "Running" },
        });
        let of = |pod: &Value, flag: &str| {
            let workload = workload(flag);
            let operations = operations(&workload)?;
            runs_for(pod, &workload).then(|| extender(pod, operations).metrics_path())
        };
        let path = "/api/v1/namespaces/dranet-system/pods/dranet-scheduler-a:9178/proxy/metrics";
        let everywhere = "--operations-listen=0.0.0.0:9178";
        assert_eq!(of(&pod, everywhere), Some(Some(path.to_owned())));
        assert_eq!(of(&pod, "--operations-listen=127.0.0.1:9178"), Some(None));
        assert_eq!(of(&pod, "--log=info"), None);
        for (pointer, value) in [
            ("/status/phase", "Pending"),
            ("/metadata/namespace", "other"),
            ("/metadata/labels/app.kubernetes.io~1name", "admission"),
        ] {
            let mut other = pod.clone();
            *other.pointer_mut(pointer).unwrap() = value.into();
            assert_eq!(of(&other, everywhere), None, "{pointer}");
        }
    }
}
