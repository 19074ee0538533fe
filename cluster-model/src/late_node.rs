//! What a pod can expect on a node that binds NICs late: the kubelet chooses its GPUs when it starts, and
//! the driver gives it near NICs, if some are free. The objects of the cluster say which GPUs and NICs
//! of the node are in use, as far as pods have both by claims for places. Of pods that have GPUs without
//! such a claim it is known how many these are, by their limits, and not which.

mod hidden;
mod sure;

use crate::names;
use crate::plugin_machines::{PluginGpus, places, plugin_gpus};
use crate::published_device::is_place;
use crate::topology_policy::{GpuGroups, TopologyPolicy};
use crate::view::{ClusterView, LateClaim, late_binding};
use dra_allocator::{AllocatedState, ClaimAllocation};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Chance, Level, NearestRequest, NicRole, PciAddress, Topology};

/// The most choices of GPUs that are tried for a pod that has not started. With 8 GPUs there are at
/// most 70.
const CHOICES_MAX: usize = 100;

/// The devices that a pod gets when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LateDemand {
    /// GPUs of a device plugin.
    pub gpus: usize,
    /// NICs.
    pub nics: usize,
    /// How near each NIC must be to its GPU; `None` accepts any distance.
    pub within: Option<Level>,
}

impl LateDemand {
    /// What a claim with this number of places demands; `None` if it does not say the number of GPUs.
    pub fn new(spec: &ResourceClaimSpec, places: usize) -> Option<Self> {
        let wanted = late_binding(spec);
        Some(Self { gpus: wanted.gpus? as usize, nics: places, within: wanted.within })
    }
}

/// The number of places of an allocation.
pub fn place_count(allocation: &ClaimAllocation) -> usize {
    let devices = allocation.results.iter().map(|result| &result.device);
    devices.filter(|id| *id.driver == *names::DRIVER && is_place(&id.device)).count()
}

/// The free devices of a node that binds NICs late.
#[derive(Clone, Debug)]
pub struct LateNode<'a> {
    topology: &'a Topology,
    policy: Option<TopologyPolicy>,
    /// All GPUs of the device plugin.
    groups: GpuGroups,
    /// GPUs that no claim names; `hidden` of them are in use.
    free_gpus: BTreeSet<PciAddress>,
    hidden: usize,
    /// One function of each port.
    free_nics: BTreeSet<PciAddress>,
    /// Taken places of which no claim is known.
    assumed: usize,
}

/// What a pod can expect when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The level that was asked for: with nearness that is only preferred, the NUMA node.
    pub within: Level,
    /// For each level, the choices of GPUs with near NICs. Empty if the kubelet refuses the pod, or has
    /// too few free GPUs.
    pub chances: BTreeMap<Level, Chance>,
}

impl<'a> LateNode<'a> {
    /// The node as the view shows it, with these places in use; `None` if it does not bind NICs late,
    /// or has no graph, or its device plugin does not offer whole GPUs.
    pub fn new(view: &'a ClusterView, node: &str, in_use: &AllocatedState) -> Option<Self> {
        let (mut late, claims) = Self::now(view, node, in_use)?;
        for demand in waiting(&claims) {
            late.start(demand);
        }
        Some(late)
    }

    /// The free NICs of a node before pods start that have not started yet.
    pub fn free_nics(view: &'a ClusterView, node: &str) -> Option<BTreeSet<PciAddress>> {
        Some(Self::now(view, node, view.inventory().state())?.0.free_nics)
    }

    /// The node before pods start that have not started yet, and the claims for its places.
    fn now(
        view: &'a ClusterView,
        node: &str,
        in_use: &AllocatedState,
    ) -> Option<(Self, Vec<&'a LateClaim>)> {
        let places: Vec<_> = places(view, node).collect();
        let pool = &places.first()?.id().pool;
        let topology = view.topology(node)?;
        let PluginGpus { resource, gpus, divided } = plugin_gpus(view, node)?;
        let claims: Vec<&LateClaim> = view.late_claims(pool).collect();
        let held_gpus = claims.iter().flat_map(|claim| &claim.gpus);
        let held: BTreeSet<PciAddress> =
            claims.iter().flat_map(|claim| &claim.nics).chain(held_gpus).copied().collect();
        let nics = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        let free = nics
            .map(|nic| nic.address)
            .filter(|nic| !held.contains(nic) && !view.is_port_down(node, *nic));
        let free_nics = topology.one_of_each_port(free).collect();
        let taken = places.iter().filter(|place| in_use.is_taken(place.id())).count();
        let known: usize = claims.iter().map(|claim| claim.places).sum();
        let policy = view.topology_policy(node);
        let late = Self {
            topology,
            policy,
            groups: GpuGroups::new(policy.unwrap_or_default(), topology, &gpus),
            free_gpus: gpus.difference(&held).copied().collect(),
            hidden: divided + hidden::gpus(view, node, (pool, resource)),
            free_nics,
            assumed: taken.saturating_sub(known),
        };
        Some((late, claims))
    }

    /// What a pod can expect, after the pods that are assumed to come first: as many of its kind as
    /// there are taken places without a known claim. Of pods without a claim it is not known which GPUs
    /// they have: the share is that of all choices of theirs and of the pod's.
    pub fn expect(mut self, demand: LateDemand) -> Expectation {
        for _ in 0..self.assumed.checked_div(demand.nics).unwrap_or_default() {
            self.start(demand);
        }
        let within = demand.within.unwrap_or(Level::Numa);
        let chances = Level::ALL.map(|level| Some((level, self.chance(demand, level)?)));
        Expectation { within, chances: chances.into_iter().flatten().collect() }
    }

    /// The GPUs that no claim names, and the free NICs.
    pub fn free(&self) -> (&BTreeSet<PciAddress>, &BTreeSet<PciAddress>) {
        (&self.free_gpus, &self.free_nics)
    }

    /// How many of the GPUs that no claim names are in use.
    pub fn hidden_gpus(&self) -> usize {
        self.hidden
    }

    /// The policy of the kubelet's topology manager, if it is known.
    pub fn policy(&self) -> Option<TopologyPolicy> {
        self.policy
    }

    fn candidates(&self, demand: LateDemand) -> Option<BTreeSet<PciAddress>> {
        self.groups.candidates(&self.free_gpus, demand.gpus)
    }

    /// Takes the devices of a pod that starts before the one in question: the first GPUs by address that
    /// have near NICs.
    fn start(&mut self, demand: LateDemand) {
        let Some(open) = self.candidates(demand) else { return };
        let open: Vec<PciAddress> = open.into_iter().collect();
        let mut request = NearestRequest {
            gpus: Vec::new(),
            nics: self.free_nics.iter().copied().collect(),
            count: demand.nics,
            within: demand.within,
            rest: Vec::new(),
        };
        for gpus in choices(&open, demand.gpus).into_iter().take(CHOICES_MAX) {
            request.gpus = gpus;
            if let Some(nics) = self.topology.nearest(&request) {
                self.free_gpus.retain(|gpu| !request.gpus.contains(gpu));
                self.free_nics.retain(|nic| !nics.contains(nic));
                return;
            }
        }
        // It waits for near NICs, and the kubelet has given it GPUs.
        for gpu in open.into_iter().take(demand.gpus) {
            self.free_gpus.remove(&gpu);
        }
    }
}

impl Expectation {
    /// The choices of GPUs without NICs as near as asked for, in parts of the whole, rounded up.
    pub fn missed(&self, parts: u32) -> u32 {
        self.chances.get(&self.within).map_or(parts, |chance| chance.missed(parts))
    }

    /// The same, summed over the nearer levels.
    pub fn missed_nearer(&self, parts: u32) -> u32 {
        let nearer = Level::ALL.into_iter().filter(|level| *level < self.within);
        nearer.map(|level| self.chances.get(&level).map_or(parts, |it| it.missed(parts))).sum()
    }
}

/// What the pods demand that have places and have not started.
fn waiting(claims: &[&LateClaim]) -> impl Iterator<Item = LateDemand> {
    claims.iter().filter(|claim| !claim.is_bound()).map(|claim| LateDemand {
        gpus: claim.wanted.gpus.map_or(claim.places, |gpus| gpus as usize),
        nics: claim.places,
        within: claim.wanted.within,
    })
}

/// The first choices of `count` devices, in order.
fn choices(all: &[PciAddress], count: usize) -> Vec<Vec<PciAddress>> {
    let mut choices = vec![Vec::new()];
    for left in (0..count).rev() {
        let mut longer = Vec::new();
        for chosen in &choices {
            let from = chosen.last().map_or(0, |last| all.partition_point(|it| it <= last));
            let to = all.len().saturating_sub(left);
            for device in all.get(from..to).unwrap_or_default() {
                let mut chosen: Vec<PciAddress> = chosen.clone();
                chosen.push(*device);
                longer.push(chosen);
            }
        }
        longer.truncate(CHOICES_MAX);
        choices = longer;
    }
    choices
}
