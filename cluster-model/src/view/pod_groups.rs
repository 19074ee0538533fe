//! Groups of pods that the scheduler places together (`PodGroup` of `scheduling.k8s.io/v1beta1`,
//! feature `GenericWorkload`), reduced to their topology keys.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use std::collections::BTreeMap;

/// Topology keys by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodGroups {
    is_served: bool,
    keys: BTreeMap<ObjectKey, Vec<String>>,
}

impl PodGroups {
    /// Returns true if the API server serves `PodGroup`s.
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// The node labels for which all pods of a group get the same value. `None` if the group is
    /// unknown.
    pub fn topology_keys(&self, key: &ObjectKey) -> Option<&[String]> {
        self.keys.get(key).map(Vec::as_slice)
    }
}

impl ClusterView {
    /// The groups of pods that the scheduler places together.
    pub fn pod_groups(&self) -> &PodGroups {
        &self.pod_groups
    }

    /// Sets whether the API server serves `PodGroup`s.
    pub fn set_pod_groups_served(&mut self, is_served: bool) {
        self.pod_groups.is_served = is_served;
    }
}

impl Index<PodGroup> for ClusterView {
    fn apply(&mut self, object: PodGroup) -> Result<(), ViewError> {
        let topology = object.spec.scheduling_constraints.and_then(|it| it.topology);
        let keys = topology.into_iter().flatten().map(|constraint| constraint.key);
        self.pod_groups.keys.insert(ObjectKey::of(&object.metadata), keys.collect());
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.pod_groups.keys.remove(key);
    }
}
