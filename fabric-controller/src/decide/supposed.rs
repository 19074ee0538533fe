//! Where the pods of a group would be in a room that is supposed, on one fabric: for who makes room.

use super::super::capacity::ClusterCapacity;
use super::super::group::{Group, PodStage};
use super::{GroupDemand, PlacementPolicy, Placer};
use cluster_model::fabric_level::LevelDomain;
use cluster_model::room::Room;
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

/// Places for all gated pods of a group on a fabric, beside those that pods of `others` still need
/// there. `None` if not all of them fit at the same time, in the domains that the group requires.
pub fn places<'g>(
    group: &Group,
    others: impl IntoIterator<Item = &'g Group>,
    (room, fabric): (&Room<'_>, &str),
) -> Option<Vec<MemberPlace>> {
    let rules = PlacementPolicy::default();
    let cluster = ClusterCapacity::of_fabric(room, fabric);
    let mut choice = Placer::new(cluster, &rules, Timestamp::UNIX_EPOCH);
    for other in others {
        let is_placing = other.members.iter().any(|member| member.stage == PodStage::Released);
        if is_placing && other.key != group.key {
            choice.keep(other);
        }
    }
    choice.cluster.begin_group();
    let needs = GroupDemand::new(group, group.gated(), choice.cluster.view()).ok()?;
    let before = choice.cluster.fabric(fabric)?.placed().len();
    let (placed, domains) = if group.has_released() {
        choice.join(group, fabric, &needs)
    } else {
        Placer::fit_on(group, &needs, choice.cluster.fabric(fabric)?)?;
        choice.take(group, fabric, &needs)
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
