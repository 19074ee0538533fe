//! Where the pods of a group would be in a room that is supposed, on one fabric: for who makes room.

use super::super::capacity::ClusterCapacity;
use super::super::group::{Group, PodStage};
use super::{GroupDemand, PlacementPolicy, Placer};
use cluster_model::fabric_level::LevelDomain;
use cluster_model::room::Room;
use cluster_model::view::ClusterView;
use dra_allocator::ClaimAllocation;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;

/// The place of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberPlace {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: Arc<str>,
    /// The devices of its claims.
    pub devices: Vec<ClaimAllocation>,
    /// The domains of levels that it goes to, nearest level first.
    pub domains: Vec<LevelDomain>,
}

/// A group on one fabric, where rooms are supposed.
#[derive(Debug)]
pub struct Supposed<'g> {
    group: &'g Group,
    fabric: &'g str,
    nodes: Arc<[Arc<str>]>,
    /// What its gated pods need; `None` if a claim is unknown.
    needs: Option<GroupDemand<'g>>,
    /// Groups of which pods with room there have no node yet.
    others: Vec<&'g Group>,
}

impl<'g> Supposed<'g> {
    /// A group on these nodes of a fabric, beside the pods that others still need there.
    pub fn new(
        group: &'g Group,
        others: impl IntoIterator<Item = &'g Group>,
        view: &ClusterView,
        (fabric, nodes): (&'g str, &[&str]),
    ) -> Self {
        let others = others.into_iter();
        let others = others.filter(|other| other.key != group.key && is_placing(other)).collect();
        let needs = GroupDemand::new(group, group.gated(), view).ok();
        let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
        Self { group, fabric, nodes, needs, others }
    }

    /// The name of the fabric.
    pub fn fabric(&self) -> &'g str {
        self.fabric
    }

    /// Places for all gated pods of the group. `None` if not all of them fit at the same time, in the
    /// domains that the group requires.
    pub fn find(&self, room: &Room<'_>) -> Option<Vec<MemberPlace>> {
        let Self { group, fabric, nodes, needs, others } = self;
        let needs = needs.as_ref()?;
        let rules = PlacementPolicy::default();
        let cluster = ClusterCapacity::of_fabric(room, fabric, Arc::clone(nodes));
        let mut choice = Placer::new(cluster, &rules, Timestamp::UNIX_EPOCH);
        for other in others {
            choice.keep(other);
        }
        choice.cluster.begin_group();
        let before = choice.cluster.fabric(fabric)?.placed().len();
        let (placed, domains) = if group.has_released() {
            choice.join(group, fabric, needs)
        } else {
            Placer::fit_on(group, needs, choice.cluster.fabric(fabric)?)?;
            choice.take(group, fabric, needs)
        };
        if placed.len() < group.gated().count() || choice.cluster.gave_up().is_some() {
            return None;
        }
        let added = choice.cluster.fabric(fabric)?.placed().get(before..)?.iter();
        let members = placed.into_iter().zip(added).map(|(member, added)| MemberPlace {
            pod: member.name.clone(),
            node: Arc::clone(&added.node),
            devices: added.devices.clone(),
            domains: domains.get(&member.name).cloned().unwrap_or_default(),
        });
        Some(members.collect())
    }
}

/// Whether the scheduler places some of its pods.
fn is_placing(group: &Group) -> bool {
    group.members.iter().any(|member| member.stage == PodStage::Released)
}
