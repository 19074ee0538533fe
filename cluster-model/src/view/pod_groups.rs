//! Groups of pods that the scheduler places together (`PodGroup` of `scheduling.k8s.io/v1beta1`,
//! feature `GenericWorkload`), reduced to their topology keys, and the groups of such groups
//! (`CompositePodGroup` of `scheduling.k8s.io/v1alpha3`, feature `CompositePodGroup`).

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use std::collections::BTreeMap;

/// More levels than a hierarchy of groups can have: validation of a `Workload` allows four
/// (`ValidateWorkloadSpec` in `pkg/apis/scheduling/validation`). Groups that name each other as
/// parents end here.
const DEPTH_MAX: usize = 8;

/// Groups, and the groups that contain them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodGroups {
    is_served: bool,
    groups: BTreeMap<ObjectKey, GroupFacts>,
    composites: BTreeMap<ObjectKey, GroupFacts>,
}

/// What matters of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupFacts {
    topology_keys: Vec<String>,
    parent: Option<String>,
}

/// A group with all groups that contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTree<'v> {
    /// The node labels for which all pods of the group get the same value.
    pub topology_keys: Vec<&'v str>,
    /// The name of the outermost `CompositePodGroup`, if there is one.
    pub root: Option<&'v str>,
}

/// A group of which nothing is known yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownGroup {
    /// The `PodGroup` itself.
    #[error("PodGroup `{0}`")]
    PodGroup(String),
    /// A group that contains it.
    #[error("CompositePodGroup `{0}`")]
    Composite(String),
}

impl PodGroups {
    /// Returns true if the API server serves `PodGroup`s.
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// A group with those that contain it.
    ///
    /// # Errors
    /// Names the group that is unknown.
    pub fn tree(&self, key: &ObjectKey) -> Result<GroupTree<'_>, UnknownGroup> {
        let mut facts =
            self.groups.get(key).ok_or_else(|| UnknownGroup::PodGroup(key.name.clone()))?;
        let mut tree = GroupTree { topology_keys: Vec::new(), root: None };
        for _ in 0..DEPTH_MAX {
            tree.topology_keys.extend(facts.topology_keys.iter().map(String::as_str));
            let Some(parent) = &facts.parent else { break };
            let key = ObjectKey { namespace: key.namespace.clone(), name: parent.clone() };
            facts =
                self.composites.get(&key).ok_or_else(|| UnknownGroup::Composite(parent.clone()))?;
            tree.root = Some(parent);
        }
        Ok(tree)
    }
}

impl ClusterView {
    /// The groups of pods that the scheduler places together.
    pub fn pod_groups(&self) -> &PodGroups {
        &self.pod_groups
    }
}

impl Index<PodGroup> for ClusterView {
    fn apply(&mut self, object: PodGroup) -> Result<(), ViewError> {
        let topology = object.spec.scheduling_constraints.and_then(|it| it.topology);
        let keys = topology.into_iter().flatten().map(|constraint| constraint.key);
        let parent = object.spec.parent_composite_pod_group_name;
        let facts = GroupFacts { topology_keys: keys.collect(), parent };
        self.pod_groups.groups.insert(ObjectKey::new(&object.metadata), facts);
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.pod_groups.groups.remove(key);
    }

    fn served(&mut self) {
        self.pod_groups.is_served = true;
    }
}

impl Index<CompositePodGroup> for ClusterView {
    fn apply(&mut self, object: CompositePodGroup) -> Result<(), ViewError> {
        let topology = object.spec.scheduling_constraints.and_then(|it| it.topology);
        let keys = topology.into_iter().flatten().map(|constraint| constraint.key);
        let parent = object.spec.parent_composite_pod_group_name;
        let facts = GroupFacts { topology_keys: keys.collect(), parent };
        self.pod_groups.composites.insert(ObjectKey::new(&object.metadata), facts);
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.pod_groups.composites.remove(key);
    }
}
