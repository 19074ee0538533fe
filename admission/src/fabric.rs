//! Determines the group of a pod whose job belongs on one fabric.
//!
//! Nothing is placed here. The pod gets its group as a label, and a scheduling gate: the
//! fabric controller waits for the group, chooses a fabric, and removes the gates. Or it
//! gets a `PodGroup`, which the fabric controller creates and the scheduler places. A pod
//! that has a `PodGroup` of its workload gets neither if the topology constraint of that
//! group already does what the pod asks for. Otherwise it gets a gate, because the
//! constraint of a `PodGroup` cannot be added later and a pod can only be in one.

use crate::denial::Denial;
use crate::group::{Fabric, group, own_pod_group};
use crate::wishes::FabricWish;
use cluster_model::names::{annotation, job_label, label};
use cluster_model::view::{ClusterView, GroupTree, UnknownGroup};
use k8s_openapi::api::core::v1::Pod;

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

/// The group of a pod that asks for one fabric, or a denial if this cluster cannot place it. `None` if
/// the scheduler places it without us.
pub(crate) fn check(
    pod: &Pod,
    wish: &FabricWish,
    placement: FabricPlacement,
    view: &ClusterView,
) -> Result<Option<JoinedGroup>, Denial> {
    let fabric = &wish.group;
    let own = own_pod_group(pod, view).map_err(|it| deny(fabric, not_known_yet(&it)))?;
    if let Some(own) = &own
        && *fabric == Fabric::Same
        && is_placed_by_scheduler(own, wish)
    {
        return Ok(None);
    }
    if placement == FabricPlacement::Off {
        return Err(deny(
            fabric,
            "no component places the pods of a job on one fabric: the fabric controller is off; \
             remove the annotation and choose the nodes by label, or ask the operator to start \
             admission with --fabric-controller",
        ));
    }
    let is_pod_group = placement == FabricPlacement::PodGroups && own.is_none();
    check_level(pod, wish, is_pod_group)?;
    if is_pod_group && !view.pod_groups().is_served() {
        return Err(deny(fabric, NOT_SERVED));
    }
    let label = group(pod, fabric, own.and_then(|own| own.root)).ok_or_else(|| {
        let why = "the pod has no controller and no job label, so it is the only pod of its job";
        deny(fabric, why).allowed("the name of a group")
    });
    label.map(|label| Some(JoinedGroup { label, is_pod_group }))
}

fn deny(fabric: &Fabric, why: impl Into<String>) -> Denial {
    Denial::new(annotation::FABRIC, fabric.to_string(), why)
}

/// Denies what cannot be kept about the level of a group.
fn check_level(pod: &Pod, wish: &FabricWish, is_pod_group: bool) -> Result<(), Denial> {
    if wish.levels.is_empty() {
        return Ok(());
    }
    let is_one_required = match wish.levels.as_slice() {
        [request] => request.is_required,
        _ => false,
    };
    let name = if wish.is_sliced { annotation::DOMAIN_SIZE } else { annotation::FABRIC_LEVEL };
    let why = if is_pod_group && (wish.is_sliced || !is_one_required) {
        "kube-scheduler places the groups here (--pod-groups), and a PodGroup has one required level \
         for all of its pods"
    } else if wish.is_sliced && !has_index(pod) {
        "the pod has no index, so its slice is unknown; use an indexed Job, a StatefulSet or a \
         LeaderWorkerSet"
    } else {
        return Ok(());
    };
    let value = pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    Err(Denial::new(name, value.unwrap_or_default(), why))
}

/// Whether the pod has an index in its job.
fn has_index(pod: &Pod) -> bool {
    let maps = [pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref()];
    let mut keys = maps.into_iter().flatten().flat_map(|map| map.keys());
    keys.any(|key| job_label::INDICES.contains(&key.as_str()))
}

/// An API server without PodGroups would drop the field, and the job's pods would be scheduled on any
/// nodes.
const NOT_SERVED: &str = "the pods of a job are to be placed as a PodGroup, and this API server has \
     no PodGroups of scheduling.k8s.io/v1beta1; ask the operator to turn on the feature gates \
     GenericWorkload and TopologyAwareWorkloadScheduling of kube-apiserver and kube-scheduler, or to \
     start admission and fabric-controller without --pod-groups";

fn not_known_yet(unknown: &UnknownGroup) -> String {
    format!(
        "{unknown} of the pod is not known yet, so it is unknown whether the scheduler puts its \
         pods on one fabric; create the group first, and try again"
    )
}

/// Returns true if the scheduler itself gives the pod's group what the pod asks for: the topology
/// constraints of the group, and of those that contain it, name the label of each required level, or
/// else that of the fabric. The scheduler knows no preferred levels.
fn is_placed_by_scheduler(own: &GroupTree<'_>, wish: &FabricWish) -> bool {
    let requests = wish.levels.as_slice();
    if requests.is_empty() {
        return own.topology_keys.contains(&label::NODE_FABRIC);
    }
    requests
        .iter()
        .all(|request| request.is_required && own.topology_keys.contains(&request.level.label()))
}
