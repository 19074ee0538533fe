//! Which pods of a cluster are asked about: one, those of a workload, or all that wait.

use super::Subject;
use crate::source::ReadCluster;
use crate::waiting::{Waiting, is_waiting, waiting};
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;
use std::path::Path;

/// The pods that are asked about.
pub(super) enum Wanted<'a> {
    /// Those of a file.
    OfFile(&'a Path),
    /// The pod with this name.
    Pod(&'a str),
    /// A pod of this workload: its kind in lower case, and its name.
    Workload(String, &'a str),
    /// One pod of each owner whose pods wait.
    Waiting {
        /// In all namespaces.
        in_all: bool,
    },
}

/// Kinds that own the owners of their pods, and the label with their name on the pods.
const LABELS: [(&str, &str); 3] = [
    ("jobset", "jobset.sigs.k8s.io/jobset-name"),
    ("leaderworkerset", "leaderworkerset.sigs.k8s.io/name"),
    ("pytorchjob", "training.kubeflow.org/job-name"),
];

/// The label with the hash of a `ReplicaSet`, which ends its name.
const TEMPLATE_HASH: &str = "pod-template-hash";

impl<'a> Wanted<'a> {
    /// Those that a kind and a name stand for; without a kind, a pod.
    pub(super) fn named(kind: Option<&str>, name: &'a str) -> anyhow::Result<Self> {
        let kind = kind.unwrap_or("pod").to_lowercase();
        // `jobs.batch` is the kind with its group.
        let kind = kind.split('.').next().unwrap_or_default();
        anyhow::ensure!(
            !kind.is_empty() && !name.is_empty() && !name.contains('/'),
            "invalid name `{kind}/{name}`: write NAME, pod/NAME, or KIND/NAME of a workload"
        );
        Ok(match kind {
            "po" | "pod" | "pods" => Self::Pod(name),
            "deploy" => Self::Workload("deployment".to_owned(), name),
            "sts" => Self::Workload("statefulset".to_owned(), name),
            "ds" => Self::Workload("daemonset".to_owned(), name),
            "rs" => Self::Workload("replicaset".to_owned(), name),
            "lws" => Self::Workload("leaderworkerset".to_owned(), name),
            kind => Self::Workload(kind.strip_suffix('s').unwrap_or(kind).to_owned(), name),
        })
    }

    /// Whether pods of any namespace can be among them.
    pub(super) fn is_everywhere(&self) -> bool {
        matches!(self, Self::Waiting { in_all: true })
    }

    /// The pods, as a cluster was read.
    pub(super) fn of_cluster(
        &self,
        seen: &ReadCluster,
        place: &str,
    ) -> anyhow::Result<Vec<Subject>> {
        let namespace = seen.namespace.as_deref().unwrap_or("default");
        let asked = (!self.is_everywhere()).then_some(namespace);
        let pods = seen.of_kind("Pod");
        let pods = pods.filter(|pod| asked.is_none_or(|it| namespace_of(pod) == it));
        let pods: Vec<&Value> = pods.collect();
        match self {
            Self::OfFile(_) => Ok(Vec::new()),
            Self::Pod(name) => {
                let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *name);
                let pod = pod.ok_or_else(|| {
                    anyhow::anyhow!("found no Pod `{name}` of namespace `{namespace}` in {place}")
                })?;
                Ok(vec![Subject::one((*pod).clone(), format!("Pod {name}"))])
            }
            Self::Workload(kind, name) => {
                let own: Vec<&Value> =
                    pods.into_iter().filter(|pod| is_of(pod, kind, name)).collect();
                anyhow::ensure!(
                    !own.is_empty(),
                    "found no pod of {kind} `{name}` of namespace `{namespace}` in {place}"
                );
                Ok(vec![first(&own, &format!("{kind} {name}"))?])
            }
            Self::Waiting { .. } => {
                let typed: Result<Vec<Pod>, _> =
                    pods.iter().map(|pod| Pod::deserialize(*pod)).collect();
                let owners = waiting(typed?.iter());
                Ok(owners.iter().filter_map(|owner| of_owner(owner, &pods)).collect())
            }
        }
    }
}

fn namespace_of(pod: &Value) -> &str {
    pod["metadata"]["namespace"].as_str().unwrap_or("default")
}

/// Returns true if a pod is of a workload: of this kind in lower case, and with this name.
fn is_of(pod: &Value, kind: &str, name: &str) -> bool {
    let metadata = &pod["metadata"];
    let labels = &metadata["labels"];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| {
        let owner_kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
        let hash = labels[TEMPLATE_HASH].as_str();
        let of_set = hash.map(|hash| format!("{name}-{hash}"));
        (owner_kind == kind && owner["name"] == name)
            || (kind == "deployment"
                && owner_kind == "replicaset"
                && owner["name"].as_str() == of_set.as_deref())
    }) || LABELS.iter().any(|(of, label)| *of == kind && labels[label] == name)
}

/// The first of the pods of a workload that waits, otherwise the first.
fn first(pods: &[&Value], workload: &str) -> anyhow::Result<Subject> {
    let typed: Result<Vec<Pod>, _> = pods.iter().map(|pod| Pod::deserialize(*pod)).collect();
    let waits: Vec<bool> = typed?.iter().map(is_waiting).collect();
    let number = waits.iter().filter(|waits| **waits).count();
    let chosen = waits.iter().position(|waits| *waits).unwrap_or_default();
    let pod = pods.get(chosen).copied().unwrap_or(&Value::Null);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let of = match (number, pods.len()) {
        (_, 1) => workload.to_owned(),
        (0, all) => format!("{workload} ({all} pods, of which none waits)"),
        (number, all) => format!("{workload} ({number} of {all} pods wait)"),
    };
    Ok(Subject::one(pod.clone(), format!("Pod {name} of {of}")))
}

/// The first waiting pod of an owner.
fn of_owner(Waiting { owner, namespace, pods }: &Waiting, all: &[&Value]) -> Option<Subject> {
    let name = pods.first()?;
    let pod = all
        .iter()
        .find(|pod| pod["metadata"]["name"] == name.as_str() && namespace_of(pod) == namespace)?;
    let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
    let origin = match pods.len() {
        1 => format!("Pod {key}"),
        number => format!("Pod {key} of {owner} ({number} pods wait)"),
    };
    Some(Subject::one((*pod).clone(), origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_written_as_for_kubectl() {
        let of = |kind: Option<&str>, name: &'static str| match Wanted::named(kind, name).unwrap() {
            Wanted::Pod(name) => format!("pod {name}"),
            Wanted::Workload(kind, name) => format!("{kind} {name}"),
            Wanted::OfFile(_) | Wanted::Waiting { .. } => String::new(),
        };
        assert_eq!(of(None, "a"), "pod a");
        assert_eq!(of(Some("pods"), "a"), "pod a");
        assert_eq!(of(Some("jobs.batch"), "a"), "job a");
        assert_eq!(of(Some("Deploy"), "a"), "deployment a");
        assert!(Wanted::named(Some("job"), "a/b").is_err());
    }

    #[test]
    fn pods_belong_to_their_workload() {
        let pod = |kind: &str, owner: &str, labels: Value| json!({ "metadata": { "labels": labels, "ownerReferences": [{ "kind": kind, "name": owner }] } });
        assert!(is_of(&pod("Job", "a", json!({})), "job", "a"));
        assert!(!is_of(&pod("Job", "a", json!({})), "job", "b"));
        let hashed = pod("ReplicaSet", "web-5d", json!({ "pod-template-hash": "5d" }));
        assert!(is_of(&hashed, "deployment", "web"));
        assert!(!is_of(&hashed, "deployment", "we"));
        let set = pod("Job", "a-w-0", json!({ "jobset.sigs.k8s.io/jobset-name": "a" }));
        assert!(is_of(&set, "jobset", "a"));
    }
}
