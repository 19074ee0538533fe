//! Determines the group of a pod: the pods of its job, or those that name the same group.

use cluster_model::names::job_label;
use cluster_model::view::{ClusterView, GroupTree, ObjectKey, UnknownGroup};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};

/// The value of annotations for the group of the pod's own job.
pub(crate) const SAME: &str = "same";

/// The pods that must be on one fabric.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// The pods of the pod's job.
    Same,
    /// The pods of the group with this name.
    Named(String),
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => SAME,
            Self::Named(name) => name,
        })
    }
}

/// Hex digits in a group's label, enough to make collisions within a cluster improbable.
const DIGITS: usize = 16;

/// The group of a pod as a label value: equal for all pods of the job and for no others
/// in the cluster. `None` if nothing identifies the pod's job.
///
/// Depends only on the pod as it was created, and on the outermost of its `CompositePodGroup`s, which
/// never changes; so a later call returns the same.
pub(crate) fn group(pod: &Pod, fabric: &Fabric, root: Option<&str>) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match fabric {
        Fabric::Named(name) => Some(hash(&[namespace, "named", name])),
        // A job of several controllers may have a PodGroup for each of them.
        Fabric::Same => by_label(pod, namespace)
            .or_else(|| Some(hash(&[namespace, "composite-pod-group", root?])))
            .or_else(|| Some(hash(&[namespace, "pod-group", pod_group(pod)?])))
            .or_else(|| Some(hash(&["controller", &controller(&pod.metadata)?.uid]))),
    }
}

/// The owner of an object that controls it.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// The group by the first label, or annotation, that marks the pods of a job.
fn by_label(pod: &Pod, namespace: &str) -> Option<String> {
    let maps = [pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref()];
    job_label::JOBS.iter().find_map(|label| {
        let value = maps.iter().flatten().find_map(|map| map.get(*label))?;
        Some(hash(&[namespace, label, value]))
    })
}

/// The `PodGroup` that the pod's workload has created for it.
pub(crate) fn own_pod_group<'v>(
    pod: &Pod,
    view: &'v ClusterView,
) -> Result<Option<GroupTree<'v>>, UnknownGroup> {
    let groups = view.pod_groups();
    let Some(name) = pod_group(pod).filter(|_| groups.is_served()) else { return Ok(None) };
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    groups.tree(&ObjectKey { namespace, name: name.clone() }).map(Some)
}

/// The pod's group in the workload API of Kubernetes.
fn pod_group(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.as_ref()
}

fn hash(parts: &[&str]) -> String {
    let mut text = String::with_capacity(DIGITS);
    for byte in Sha256::digest(parts.join("\0")).iter().take(DIGITS / 2) {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, namespace: &str, labels: &serde_json::Value, uid: Option<&str>) -> Pod {
        let owner = |uid| json!({ "apiVersion": "v1", "kind": "Job", "name": "j", "uid": uid, "controller": true });
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "ownerReferences": uid.map(owner).into_iter().collect::<Vec<_>>(),
        } }))
        .unwrap()
    }

    #[test]
    fn pods_of_a_job_are_a_group_and_others_are_not() {
        let none = json!({});
        let of = |uid| group(&pod("a", "n", &none, uid), &Fabric::Same, None);
        assert!(of(Some("1")).is_some());
        assert_eq!(of(Some("1")), group(&pod("b", "n", &none, Some("1")), &Fabric::Same, None));
        assert_ne!(of(Some("1")), of(Some("2")));
        assert_eq!(of(None), None);
    }

    /// A `JobSet` has a Job per replica, a `LeaderWorkerSet` a StatefulSet per group.
    #[test]
    fn job_labels_group_pods_of_several_controllers() {
        for label in job_label::JOBS {
            let labels = json!({ label: "train" });
            let of = |uid, namespace| {
                group(&pod("a", namespace, &labels, Some(uid)), &Fabric::Same, None)
            };
            assert_eq!(of("1", "n"), of("2", "n"), "{label}");
            assert_ne!(of("1", "n"), of("1", "m"), "{label}");
        }
    }

    #[test]
    fn named_groups_are_per_namespace() {
        let of = |namespace, name: &str| {
            let named = Fabric::Named(name.to_owned());
            group(&pod("a", namespace, &json!({}), None), &named, None).unwrap()
        };
        assert_eq!(of("n", "x"), of("n", "x"));
        assert_ne!(of("n", "x"), of("m", "x"));
        assert_ne!(of("n", "x"), of("n", "y"));
        assert_eq!(of("n", "x").len(), DIGITS);
    }
}
