//! `PodGroup`s of Kubernetes, by which kube-scheduler puts groups on one fabric itself
//! (`scheduling.k8s.io/v1beta1`, feature gates `GenericWorkload` and
//! `TopologyAwareWorkloadScheduling`).
//!
//! Admission names the `PodGroup` in each pod, and the scheduler holds the pods until it is
//! there and has so many pods as it says (`PreEnqueue` of its plugin `GangScheduling`). So one is
//! made when the size of the group is known, and deleted when it has no pods any more. Its
//! topology constraint cannot change once it is made.

use crate::group::{Group, GroupKey, PodStage};
use crate::waiting::WaitingReason;
use cluster_model::names::{label, pod_group};
use cluster_model::view::ObjectKey;
use k8s_openapi::api::scheduling::v1beta1::{
    BasicSchedulingPolicy, GangSchedulingPolicy, PodGroup, PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy, PodGroupSpec, TopologyConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// A `PodGroup` that was made for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadePodGroup {
    /// Its identity.
    pub uid: String,
    /// The version that this was read from.
    pub version: String,
    /// How many pods the scheduler places together; `None` where it places each when it can.
    pub min_count: Option<i32>,
}

/// Those of the cluster, by group.
#[derive(Clone, Debug, Default)]
pub struct MadePodGroups(BTreeMap<GroupKey, MadePodGroup>);

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum PodGroupWrite {
    /// It is missing.
    Create(Box<PodGroup>),
    /// Pods wait, and the group has another size than it says.
    SetMinCount {
        /// The version that this was decided from.
        version: String,
        /// The new value.
        min_count: i32,
    },
    /// The group has no pods any more.
    Delete {
        /// Its identity.
        uid: String,
        /// The version that this was decided from.
        version: String,
    },
}

impl MadePodGroups {
    /// Adds one, or replaces the one of its name. Others than those made here are left out.
    pub fn apply(&mut self, object: &PodGroup) {
        let Some(key) = key_of(object) else { return };
        let metadata = &object.metadata;
        let (Some(uid), Some(version)) = (&metadata.uid, &metadata.resource_version) else {
            return;
        };
        let gang = object.spec.scheduling_policy.gang.as_ref();
        let made = MadePodGroup {
            uid: uid.clone(),
            version: version.clone(),
            min_count: gang.map(|gang| gang.min_count),
        };
        self.0.insert(key, made);
    }

    /// Removes the one of this name.
    pub fn delete(&mut self, key: &ObjectKey) {
        let is_named = |group: &GroupKey| {
            group.namespace == key.namespace && pod_group(&group.label) == key.name
        };
        self.0.retain(|group, _| !is_named(group));
    }

    /// The one that was made for a group.
    pub fn get(&self, group: &GroupKey) -> Option<&MadePodGroup> {
        self.0.get(group)
    }
}

/// The group that a `PodGroup` was made for.
fn key_of(object: &PodGroup) -> Option<GroupKey> {
    let metadata = &object.metadata;
    let label = metadata.labels.as_ref()?.get(label::FABRIC_GROUP)?.clone();
    let is_ours = metadata.name.as_ref() == Some(&pod_group(&label));
    let namespace = metadata.namespace.clone().unwrap_or_default();
    is_ours.then_some(GroupKey { namespace, label })
}

/// What is due now, from all groups that have pods. Those whose size could not be read have no
/// waiting members, and nothing is made for them.
pub fn due(groups: &[Group], made: &MadePodGroups) -> Vec<(GroupKey, PodGroupWrite)> {
    let there: BTreeSet<_> = groups.iter().map(|group| &group.key).collect();
    let unused = made.0.iter().filter(|(key, _)| !there.contains(key)).map(|(key, made)| {
        let (uid, version) = (made.uid.clone(), made.version.clone());
        (key.clone(), PodGroupWrite::Delete { uid, version })
    });
    let waiting = groups.iter().filter(|group| group.is_pod_group() && is_waiting(group));
    let writes = waiting.filter_map(|group| {
        let write = match made.get(&group.key) {
            None => PodGroupWrite::Create(Box::new(build(group))),
            Some(known) => {
                let (old, min_count) = (known.min_count?, min_count(group)?);
                let version = known.version.clone();
                (old != min_count).then_some(PodGroupWrite::SetMinCount { version, min_count })?
            }
        };
        Some((group.key.clone(), write))
    });
    unused.chain(writes).collect()
}

/// Why a group waits that the scheduler does not know yet as a whole; then it is the scheduler
/// that says why.
pub fn waiting(group: &Group) -> Option<WaitingReason> {
    if !is_waiting(group) {
        return None;
    }
    if !group.is_pod_group() {
        return Some(WaitingReason::OtherPlacement);
    }
    let (have, want) = (group.present(), group.size?.pods);
    (have < want).then_some(WaitingReason::NotWhole { have, want })
}

fn is_waiting(group: &Group) -> bool {
    group.gated().next().is_some()
}

/// How many pods must have a place before any gets one. `None` where nothing says how many there
/// will be, and where one pod is created only when another runs.
fn min_count(group: &Group) -> Option<i32> {
    let size = group.size.filter(|size| size.at_once)?;
    let ended = group.members.iter().filter(|member| member.stage == PodStage::Succeeded).count();
    // Pods that have ended and still count to the size; the scheduler does not count them.
    let counted = ended - (group.members.len() - group.present());
    i32::try_from(size.pods.saturating_sub(counted).max(1)).ok()
}

fn build(group: &Group) -> PodGroup {
    let GroupKey { namespace, label } = &group.key;
    let policy = match min_count(group) {
        Some(min_count) => PodGroupSchedulingPolicy {
            gang: Some(GangSchedulingPolicy { min_count }),
            ..PodGroupSchedulingPolicy::default()
        },
        None => PodGroupSchedulingPolicy {
            basic: Some(BasicSchedulingPolicy::default()),
            ..PodGroupSchedulingPolicy::default()
        },
    };
    let on_fabric = TopologyConstraint { key: label::NODE_FABRIC.to_owned() };
    let first = group.members.iter().max_by_key(|member| member.priority);
    PodGroup {
        metadata: ObjectMeta {
            name: Some(pod_group(label)),
            namespace: Some(namespace.clone()),
            labels: Some(BTreeMap::from([(label::FABRIC_GROUP.to_owned(), label.clone())])),
            ..ObjectMeta::default()
        },
        spec: PodGroupSpec {
            scheduling_policy: policy,
            scheduling_constraints: Some(PodGroupSchedulingConstraints {
                topology: Some(vec![on_fabric]),
            }),
            priority_class_name: first.and_then(|member| member.priority_class.clone()),
            ..PodGroupSpec::default()
        },
        ..PodGroup::default()
    }
}

/// Returns true if the API server has kept the constraint that [`due`] gave a `PodGroup`.
pub fn has_constraint(object: &PodGroup) -> bool {
    let constraints = object.spec.scheduling_constraints.as_ref();
    let topology = constraints.and_then(|it| it.topology.as_deref()).unwrap_or_default();
    topology.iter().any(|constraint| constraint.key == label::NODE_FABRIC)
}

#[cfg(test)]
mod tests;
