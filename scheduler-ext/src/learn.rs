//! Scans the cluster in short steps: learns the pods that it runs from its claims, and
//! the free capacity of its nodes and fabrics.
//!
//! The view is locked for only one step at a time, because a watch waits for readers of
//! the view, and requests wait for the watch.

use crate::expected::{Expected, FabricRoom, NodeRoom, PodName};
use crate::machine::Machine;
use crate::score::{Demand, Mix};
use cluster_model::names::label;
use cluster_model::predict::OpenClaim;
use cluster_model::view::{ClusterView, KnownClaim, NodeVersion, ObjectKey};
use dra_allocator::{ClaimName, DeviceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use topology_graph::{Level, PathKind};

/// The weight of the configured mix, in claims.
const PRIOR: u32 = 100;

/// Difference in a share, in millionths, from which costs are computed again.
const DIFFERENCE: u32 = 20_000;

/// The most claims per step.
pub const CLAIMS_PER_STEP: usize = 200;

/// The most nodes per step.
pub const NODES_PER_STEP: usize = 50;

/// The most distinct specs that are counted; a cluster has few.
const SPECS_MAX: usize = 100;

/// A scan of the cluster in progress.
#[derive(Debug)]
pub struct Learning {
    before: Arc<Expected>,
    at: At,
    /// Number of claims that hold GPUs or NICs, by what they hold.
    counts: BTreeMap<Demand, u32>,
    /// Specs of claims that hold GPUs or NICs, and how many claims have each.
    claims: Vec<(OpenClaim, u32)>,
    rooms: HashMap<String, (NodeVersion, NodeRoom)>,
    /// The nodes of each fabric. Nodes without a fabric are under the empty name.
    fabrics: BTreeMap<String, Vec<String>>,
    /// Pods that got devices since the last scan.
    bound: Vec<BoundPod>,
}

/// A pod that has recently got GPUs or NICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// The pod.
    pub pod: PodName,
    /// The farthest path among its pairs; none if it has no pair.
    pub path: Option<PathKind>,
}

/// The position of a scan.
#[derive(Debug)]
enum At {
    /// The last claim that was counted.
    Claims(Option<ObjectKey>),
    /// The remaining nodes.
    Nodes(Vec<Arc<str>>),
}

impl Learning {
    /// Starts a scan.
    pub fn new(before: Arc<Expected>) -> Self {
        Self {
            before,
            at: At::Claims(None),
            counts: BTreeMap::new(),
            claims: Vec::new(),
            rooms: HashMap::new(),
            fabrics: BTreeMap::new(),
            bound: Vec::new(),
        }
    }

    /// Processes up to [`CLAIMS_PER_STEP`] claims or [`NODES_PER_STEP`] nodes. Returns
    /// true while others remain. Changes between two steps may be missed until the next
    /// scan.
    pub fn step(&mut self, view: &ClusterView, machine: &dyn Fn(&str) -> Arc<Machine>) -> bool {
        match &mut self.at {
            At::Claims(last) => {
                let mut looked_at = 0;
                let claims = view.claims_after(last.as_ref()).take(CLAIMS_PER_STEP);
                let mut end = None;
                for (key, claim) in claims {
                    looked_at += 1;
                    end = Some(key.clone());
                    if claim.is_allocated {
                        let name = ClaimName::new(key.namespace.as_str(), key.name.as_str());
                        let demand = demand(view.inventory().held_by(&name));
                        *self.counts.entry(demand).or_default() += 1;
                        if demand.worth() > 0 {
                            count(&mut self.claims, key, claim);
                        }
                    }
                }
                self.at = if looked_at == CLAIMS_PER_STEP {
                    At::Claims(end)
                } else {
                    At::Nodes(view.inventory().node_names().cloned().collect())
                };
                true
            }
            At::Nodes(left) => {
                let some = left.split_off(left.len().saturating_sub(NODES_PER_STEP));
                let is_over = left.is_empty();
                for node in &some {
                    self.look_at(view, node, machine);
                }
                !is_over
            }
        }
    }

    fn look_at(&mut self, view: &ClusterView, node: &str, machine: &dyn Fn(&str) -> Arc<Machine>) {
        let version = view.node_version(node);
        let before = self.before.rooms.get(node);
        let room = match before {
            Some((of, known)) if of.has_same_devices(version) => known.clone(),
            _ => {
                let machine = machine(node);
                let room = machine.room(view.inventory().state());
                let is_whole = machine.has_devices() && room.node() == machine.whole().node();
                let pods = pods(view, &machine);
                let is_new = |pod: &PodName| !before.is_some_and(|(_, of)| of.pods.contains(pod));
                for (pod, devices) in pods.iter().filter(|(pod, _)| is_new(pod)) {
                    let path = machine.farthest_path(devices);
                    self.bound.push(BoundPod { pod: pod.clone(), path });
                }
                NodeRoom { room, is_whole, pods: Arc::new(pods.into_keys().collect()) }
            }
        };
        self.rooms.insert(node.to_owned(), (version, room));
        let fabric = view.fabric(node).unwrap_or_default();
        self.fabrics.entry(fabric.to_owned()).or_default().push(node.to_owned());
    }

    /// The expectations after the scan, and the pods that were bound since the previous
    /// scan; none after the first scan.
    pub fn finish(self) -> (Expected, Vec<BoundPod>) {
        let Self { before, at: _, counts, claims, rooms, fabrics, bound } = self;
        let learned = learned(&counts, &before.prior, &before.mix);
        let differs = learned.is_some();
        let mix = learned.unwrap_or_else(|| before.mix.clone());
        let fabrics = fabrics.into_iter().map(|(name, nodes)| {
            let nodes = nodes.iter().filter_map(|node| rooms.get(node));
            let mut room = FabricRoom::of(nodes.map(|(_, room)| room), &mix);
            if name.is_empty() {
                room.pods.retain(|demand, _| demand.nodes == 1);
            }
            (name, room)
        });
        let fabrics = fabrics.collect();
        let mix_version = before.mix_version + u64::from(differs);
        // The first one by name wins ties.
        let standard = claims.into_iter().rev().max_by_key(|(_, count)| *count);
        let standard = standard.map(|(claim, _)| Arc::new(claim));
        let bound = if before.is_known { bound } else { Vec::new() };
        let prior = before.prior.clone();
        let is_known = true;
        (Expected { prior, mix, mix_version, rooms, fabrics, is_known, standard }, bound)
    }
}

/// The pods with GPUs or NICs of a machine, and those devices.
fn pods(view: &ClusterView, machine: &Machine) -> BTreeMap<PodName, Vec<DeviceId>> {
    let mut held: BTreeMap<&ClaimName, Vec<DeviceId>> = BTreeMap::new();
    for device in machine.devices() {
        if let Some(holder) = view.inventory().holder(device) {
            held.entry(holder).or_default().push(device.clone());
        }
    }
    let mut pods: BTreeMap<PodName, Vec<DeviceId>> = BTreeMap::new();
    for (holder, devices) in held {
        let (namespace, claim) = (holder.namespace.to_string(), holder.name.to_string());
        let claim = view.claim(&ObjectKey { namespace: namespace.clone(), name: claim });
        if let Some((name, uid)) = claim.and_then(|claim| claim.pod.clone()) {
            let pod = PodName { key: ObjectKey { namespace, name }, uid };
            pods.entry(pod).or_default().extend(devices);
        }
    }
    pods
}

/// The mix of a cluster in which this many claims of each shape hold GPUs or NICs,
/// combined with the configured mix. `None` if it is almost the same as before.
pub fn learned(counts: &BTreeMap<Demand, u32>, prior: &Mix, before: &Mix) -> Option<Mix> {
    let claims: u32 = counts.values().sum();
    // Claims do not show which pods form a gang, so the share of gangs stays as
    // configured.
    let claims_for = |demand: &Demand| if demand.nodes > 1 { claims + PRIOR } else { PRIOR };
    // Shares are millionths, counts thousandths of a claim.
    let prior = prior.shares().iter().map(|(demand, share)| {
        let count = u64::from(*share) * u64::from(claims_for(demand)) / 1_000;
        (*demand, u32::try_from(count).unwrap_or(u32::MAX))
    });
    let counts = counts.iter().map(|(demand, count)| (*demand, count.saturating_mul(1_000)));
    let mix = Mix::new(prior.chain(counts));
    before.differs(&mix, DIFFERENCE).then_some(mix)
}

/// Counts a claim together with equal ones, which share their spec in the view.
fn count(counts: &mut Vec<(OpenClaim, u32)>, key: &ObjectKey, claim: &KnownClaim) {
    let Some(spec) = &claim.spec else { return };
    let known = counts.iter_mut().find(|(known, _)| Arc::ptr_eq(&known.spec, spec));
    if let Some((_, count)) = known {
        *count += 1;
        return;
    }
    if counts.len() < SPECS_MAX {
        let is_ours = claim.labels.contains_key(label::TEMPLATE);
        let (key, spec) = (key.clone(), spec.clone());
        counts.push((OpenClaim { key, is_made: false, is_ours, spec }, 1));
    }
}

/// Names of the levels of a node's room, near to far.
pub fn levels() -> impl Iterator<Item = String> {
    Level::ALL.iter().map(ToString::to_string).chain(["node".to_owned()])
}

/// The demand that a claim's devices correspond to.
fn demand<'d>(devices: impl Iterator<Item = &'d DeviceId>) -> Demand {
    let mut demand = Demand { gpus: 0, nics: 0, nodes: 1 };
    for device in devices {
        if *device.driver == *cluster_model::names::DRIVER {
            demand.nics += 1;
        } else if cluster_model::gpu_drivers::by_name(&device.driver).is_some() {
            demand.gpus += 1;
        }
    }
    demand
}
