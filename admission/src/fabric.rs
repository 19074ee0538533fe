//! Determines the group of a pod whose job belongs on one fabric.
//!
//! Nothing is placed here. The pod gets its group as a label, and a scheduling gate: the
//! fabric controller waits for the group, chooses a fabric, and removes the gates. Or it
//! gets a `PodGroup`, which the fabric controller creates and the scheduler places. A pod
//! that has a `PodGroup` of its workload gets neither if the topology constraint of that
//! group already does what the pod asks for. Otherwise it gets a gate, because the
//! constraint of a `PodGroup` cannot be added later and a pod can only be in one.

use crate::denial::Denial;
use crate::intent::{Fabric, Intent};
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, job_label, label};
use cluster_model::view::{ClusterView, GroupTree, ObjectKey, UnknownGroup};
use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Hex digits in a group's label, enough to make collisions within a cluster improbable.
const DIGITS: usize = 16;

/// Labels and annotations that identify a job with several controllers: the Jobs of a
/// `JobSet`, each StatefulSet of a `LeaderWorkerSet`, launcher and workers of an
/// `MPIJob`, the `PodGroup` of scheduler-plugins and of Volcano. The controller of such a
/// pod owns only a part of the job.
const JOB_LABELS: [&str; 5] = [
    job_label::JOB_SET,
    job_label::LEADER_WORKER_GROUP,
    job_label::TRAINING_JOB,
    job_label::POD_GROUP,
    job_label::VOLCANO_GROUP,
];

/// The group of a pod as a label value: equal for all pods of the job and for no others
/// in the cluster. `None` if nothing identifies the pod's job.
///
/// Depends only on the pod as it was created, and on the outermost of its `CompositePodGroup`s, which
/// never changes; so a later call returns the same.
pub fn group(pod: &Pod, fabric: &Fabric, root: Option<&str>) -> Option<String> {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let labels = metadata.labels.as_ref();
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let annotations = metadata.annotations.as_ref();
    let by_label = || {
        let value = |label: &&str| {
            let of = |map: Option<&BTreeMap<String, String>>| map?.get(*label).cloned();
            of(labels).or_else(|| of(annotations))
        };
        JOB_LABELS.iter().find_map(|label| Some(hash(&[namespace, label, &value(label)?])))
    };
    let by_composite = || Some(hash(&[namespace, "composite-pod-group", root?]));
    let by_pod_group = || Some(hash(&[namespace, "pod-group", pod_group(pod)?]));
    match fabric {
        Fabric::Named(name) => Some(hash(&[namespace, "named", name])),
        // A job of several controllers may have a PodGroup for each of them.
        Fabric::Same => by_label().or_else(by_composite).or_else(by_pod_group).or_else(|| {
            let controller = owners.iter().find(|owner| owner.controller == Some(true))?;
            Some(hash(&["controller", &controller.uid]))
        }),
    }
}

/// The component that puts the pods of a job on one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricPlacement {
    /// None: pods that request it are denied.
    Off,
    /// The fabric controller, which removes the scheduling gates of the pods.
    Gates,
    /// kube-scheduler, by `PodGroup`s that the fabric controller creates.
    PodGroups,
}

/// The group that a pod joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedGroup {
    /// The value of the pod's label.
    pub(crate) label: String,
    /// Whether the scheduler places it as a `PodGroup`.
    pub(crate) is_pod_group: bool,
}

/// The group of a pod that requests one, or a denial if this cluster cannot place it.
pub(crate) fn check(
    pod: &Pod,
    intent: &Intent,
    placement: FabricPlacement,
    view: &ClusterView,
) -> Result<Option<JoinedGroup>, Denial> {
    let Some(fabric) = &intent.fabric else { return Ok(None) };
    let deny = |why: &str| Denial::new(annotation::FABRIC, fabric.to_string(), why);
    let own = own_pod_group(pod, view).map_err(|unknown| deny(&not_known_yet(&unknown)))?;
    if let Some(own) = &own
        && *fabric == Fabric::Same
        && is_placed_by_scheduler(own, intent)
    {
        return Ok(None);
    }
    if placement == FabricPlacement::Off {
        return Err(deny(
            "no component places the pods of a job on one fabric: the fabric controller is off; \
             remove the annotation and choose the nodes by label, or ask the operator to start \
             admission with --fabric-controller",
        ));
    }
    let is_pod_group = placement == FabricPlacement::PodGroups && own.is_none();
    check_level(pod, intent, is_pod_group)?;
    if is_pod_group && !view.pod_groups().is_served() {
        return Err(deny(NOT_SERVED));
    }
    let label = group(pod, fabric, own.and_then(|own| own.root)).ok_or_else(|| {
        deny("the pod has no controller and no job label, so it is the only pod of its job")
            .allowed("the name of a group")
    });
    label.map(|label| Some(JoinedGroup { label, is_pod_group }))
}

/// Denies what cannot be kept about the level of a group.
fn check_level(pod: &Pod, intent: &Intent, is_pod_group: bool) -> Result<(), Denial> {
    if intent.fabric_levels.is_empty() {
        return Ok(());
    }
    let is_one_required = match intent.fabric_levels.as_slice() {
        [request] => request.is_required,
        _ => false,
    };
    let value =
        |name: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let deny = |name: &'static str, why: &str| {
        Err(Denial::new(name, value(name).unwrap_or_default(), why))
    };
    if is_pod_group && (intent.is_sliced || !is_one_required) {
        let name =
            if intent.is_sliced { annotation::DOMAIN_SIZE } else { annotation::FABRIC_LEVEL };
        return deny(
            name,
            "kube-scheduler places the groups here (--pod-groups), and a PodGroup has one required \
             level for all of its pods",
        );
    }
    let maps = [pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref()];
    let has = |key: &&str| maps.iter().flatten().any(|map| map.contains_key(*key));
    if intent.is_sliced && !job_label::INDICES.iter().any(has) {
        return deny(
            annotation::DOMAIN_SIZE,
            "the pod has no index, so its slice is unknown; use an indexed Job, a StatefulSet or a \
             LeaderWorkerSet",
        );
    }
    Ok(())
}

/// An API server without PodGroups would drop the field, and the job's pods would be scheduled on any
/// nodes.
const NOT_SERVED: &str = "the pods of a job are to be placed as a PodGroup, and this API server has \
     no PodGroups of scheduling.k8s.io/v1beta1; ask the operator to turn on the feature gates \
     GenericWorkload and TopologyAwareWorkloadScheduling of kube-apiserver and kube-scheduler, or to \
     start admission and fabric-controller without --pod-groups";

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

fn not_known_yet(unknown: &UnknownGroup) -> String {
    format!(
        "{unknown} of the pod is not known yet, so it is unknown whether the scheduler puts its \
         pods on one fabric; create the group first, and try again"
    )
}

/// Returns true if the scheduler itself gives the pod's group what the pod asks for: the topology
/// constraints of the group, and of those that contain it, name the label of each required level, or
/// else that of the fabric. The scheduler knows no preferred levels.
fn is_placed_by_scheduler(own: &GroupTree<'_>, intent: &Intent) -> bool {
    let requests = intent.fabric_levels.as_slice();
    let has = |key: &str| own.topology_keys.contains(&key);
    if requests.is_empty() {
        return has(label::NODE_FABRIC);
    }
    requests.iter().all(|request| request.is_required && has(request.level.label()))
}

/// The pod's group in the workload API of Kubernetes.
fn pod_group(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.as_ref()
}

/// Denies the pod unless fabrics are known: from an attribute of the NICs, or from a
/// label that the operator has set on nodes.
pub(crate) fn check_machines(
    intent: &Intent,
    machines: &[Machine<'_>],
    view: &ClusterView,
) -> Result<(), Denial> {
    let Some(fabric) = &intent.fabric else { return Ok(()) };
    let tells = |machine: &Machine<'_>| {
        machine.nics_have(attribute::FABRIC)
            || machine.nodes.iter().any(|name| {
                let node = view.inventory().node(name);
                node.is_some_and(|node| node.labels.contains_key(label::NODE_FABRIC))
            })
    };
    if machines.iter().any(tells) {
        return check_level_labels(intent, machines, view);
    }
    Err(Denial::new(
        annotation::FABRIC,
        fabric.to_string(),
        format!(
            "no node that can serve the pod publishes {} on its NICs or has the label {}, so \
             their fabric is unknown",
            attribute::FABRIC,
            label::NODE_FABRIC,
        ),
    ))
}

/// Denies a required level of which no node that can serve the pod has a domain.
fn check_level_labels(
    intent: &Intent,
    machines: &[Machine<'_>],
    view: &ClusterView,
) -> Result<(), Denial> {
    for level in intent.fabric_levels.required() {
        let key = level.label();
        let labelled = |name: &&str| {
            let node = view.inventory().node(name);
            node.is_some_and(|node| node.labels.contains_key(key))
        };
        if !machines.iter().any(|machine| machine.nodes.iter().any(labelled)) {
            return Err(Denial::new(
                annotation::FABRIC_LEVEL,
                level.name(),
                format!(
                    "no node that can serve the pod has the label {key}, so its domains are \
                     unknown; label the nodes, or see --level-labels of fabric-controller"
                ),
            ));
        }
    }
    Ok(())
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
        for label in JOB_LABELS {
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
