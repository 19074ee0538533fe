//! Kubernetes `PodGroup`s, with which kube-scheduler itself places groups on one fabric
//! (`scheduling.k8s.io/v1beta1`, feature gates `GenericWorkload` and
//! `TopologyAwareWorkloadScheduling`).
//!
//! Admission names the `PodGroup` in each pod. The scheduler holds the pods until the
//! `PodGroup` exists and has its minimum number of pods (`PreEnqueue` of its plugin
//! `GangScheduling`). So a `PodGroup` is created when the size of the group is known, and
//! deleted when the group has no more pods. Its topology constraint is immutable.

use crate::group::{Group, GroupKey, PodStage};
use crate::waiting::WaitingReason;
use cluster_model::fabric_level::FabricLevel;
use cluster_model::names::{label, pod_group};
use cluster_model::view::ObjectKey;
use k8s_openapi::api::scheduling::v1beta1::{
    BasicSchedulingPolicy, GangSchedulingPolicy, PodGroup, PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy, PodGroupSpec, TopologyConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// A `PodGroup` that this controller created for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadePodGroup {
    /// Its UID.
    pub uid: String,
    /// Its resource version when it was read.
    pub version: String,
    /// How many pods the scheduler places together; `None` if it places each pod as soon
    /// as it can.
    pub min_count: Option<i32>,
}

/// The `PodGroup`s of this controller, by group.
#[derive(Clone, Debug, Default)]
pub struct MadePodGroups(BTreeMap<GroupKey, MadePodGroup>);

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum PodGroupWrite {
    /// Create a missing `PodGroup`.
    Create(Box<PodGroup>),
    /// Change the minimum: pods wait, and the group's size differs.
    SetMinCount {
        /// The resource version that this was decided from.
        version: String,
        /// The new value.
        min_count: i32,
    },
    /// Delete it, because the group has no more pods.
    Delete {
        /// Its UID.
        uid: String,
        /// The resource version that this was decided from.
        version: String,
    },
}

impl MadePodGroups {
    /// Adds or replaces a `PodGroup`. Ignores those that this controller did not create.
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

    /// Removes the `PodGroup` with this name.
    pub fn delete(&mut self, key: &ObjectKey) {
        self.0.retain(|group, _| {
            group.namespace != key.namespace || pod_group(&group.label) != key.name
        });
    }

    /// The `PodGroup` of a group.
    pub fn get(&self, group: &GroupKey) -> Option<&MadePodGroup> {
        self.0.get(group)
    }
}

/// The group that a `PodGroup` was created for.
fn key_of(object: &PodGroup) -> Option<GroupKey> {
    let metadata = &object.metadata;
    let label = metadata.labels.as_ref()?.get(label::FABRIC_GROUP)?.clone();
    let is_ours = metadata.name.as_ref() == Some(&pod_group(&label));
    let namespace = metadata.namespace.clone().unwrap_or_default();
    is_ours.then_some(GroupKey { namespace, label })
}

/// The writes that are due, given all groups with pods. A group whose size could not be
/// read has no waiting members, so nothing is created for it.
pub fn due<'g>(
    groups: impl Iterator<Item = &'g Group> + Clone,
    made: &MadePodGroups,
) -> Vec<(GroupKey, PodGroupWrite)> {
    let there: BTreeSet<_> = groups.clone().map(|group| &group.key).collect();
    let unused = made.0.iter().filter(|(key, _)| !there.contains(key)).map(|(key, made)| {
        let (uid, version) = (made.uid.clone(), made.version.clone());
        (key.clone(), PodGroupWrite::Delete { uid, version })
    });
    let waiting = groups.filter(|group| group.is_pod_group() && group.has_gated());
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

/// Why a group waits that is not complete for the scheduler yet. Later the scheduler
/// itself reports why.
pub fn waiting(group: &Group) -> Option<WaitingReason> {
    if !group.is_pod_group() || !group.has_gated() {
        return None;
    }
    let (have, want) = (group.present(), group.size?.pods);
    (have < want).then_some(WaitingReason::NotWhole { have, want })
}

/// How many pods must have places before any gets one. `None` if the number of pods is
/// unknown, and if pods are created only after others run.
fn min_count(group: &Group) -> Option<i32> {
    let size = group.size.filter(|size| size.at_once)?;
    let ended = group.members.iter().filter(|member| member.stage == PodStage::Succeeded).count();
    // Ended pods that still count towards the size. The scheduler does not count them.
    let counted = ended - (group.members.len() - group.present());
    i32::try_from(size.pods.saturating_sub(counted).max(1)).ok()
}

fn build(group: &Group) -> PodGroup {
    let GroupKey { namespace, label } = &group.key;
    let gang = min_count(group).map(|min_count| GangSchedulingPolicy { min_count });
    let basic = gang.is_none().then(BasicSchedulingPolicy::default);
    // Admission allows only one.
    let level = group.levels().required().next().map_or(label::NODE_FABRIC, FabricLevel::label);
    let on_fabric = TopologyConstraint { key: level.to_owned() };
    let first = group.members.iter().max_by_key(|member| member.priority);
    PodGroup {
        metadata: ObjectMeta {
            name: Some(pod_group(label)),
            namespace: Some(namespace.clone()),
            labels: Some(BTreeMap::from([(label::FABRIC_GROUP.to_owned(), label.clone())])),
            ..ObjectMeta::default()
        },
        spec: PodGroupSpec {
            scheduling_policy: PodGroupSchedulingPolicy { gang, basic },
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
    let keys = FabricLevel::ALL.map(FabricLevel::label);
    let mut keys = keys.into_iter().chain([label::NODE_FABRIC]);
    keys.any(|key| topology.iter().any(|constraint| constraint.key == key))
}

#[cfg(test)]
mod tests;
