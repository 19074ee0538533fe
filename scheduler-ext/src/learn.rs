//! Scans the cluster in short steps: learns the pods that came and their most common claim, and
//! the free capacity of its nodes and fabrics.
//!
//! The view is locked for only one step at a time, because a watch waits for readers of
//! the view, and requests wait for the watch.

use crate::expected::{Expected, FabricRoom, NodeRoom, PodName, domains};
use crate::machine::NodeMachine;
use crate::score::Demand;
use cluster_model::device_state::stranded;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use cluster_model::room::OpenClaim;
use cluster_model::view::{ClusterView, KnownClaim, NodeVersion, ObjectKey};
use dra_allocator::{ClaimName, DeviceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use topology_graph::{Level, PathKind};

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
    /// Specs of claims that hold GPUs or NICs, and how many claims have each.
    claims: Vec<(OpenClaim, u32)>,
    rooms: HashMap<String, (NodeVersion, NodeRoom)>,
    /// The nodes of each fabric. Nodes without a fabric are under the empty name.
    fabrics: BTreeMap<String, Vec<String>>,
    /// The number of whole nodes of each domain.
    domains: BTreeMap<LevelDomain, u32>,
    /// Pods that got devices since the last scan.
    bound: Vec<BoundPod>,
}

/// A pod that has recently got GPUs or NICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// The pod.
    pub pod: PodName,
    /// Its GPUs and NICs.
    pub demand: Demand,
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
            claims: Vec::new(),
            rooms: HashMap::new(),
            fabrics: BTreeMap::new(),
            domains: BTreeMap::new(),
            bound: Vec::new(),
        }
    }

    /// Processes up to [`CLAIMS_PER_STEP`] claims or [`NODES_PER_STEP`] nodes. Returns
    /// true while others remain. Changes between two steps may be missed until the next
    /// scan.
    pub fn step(&mut self, view: &ClusterView, machine: &dyn Fn(&str) -> Arc<NodeMachine>) -> bool {
        match &mut self.at {
            At::Claims(last) => {
                let mut looked_at = 0;
                let claims = view.claims_after(last.as_ref()).take(CLAIMS_PER_STEP);
                let mut end = None;
                for (key, claim) in claims {
                    looked_at += 1;
                    end = Some(key.clone());
                    if claim.is_allocated && demand(view.held_by(key)).worth() > 0 {
                        count(&mut self.claims, key, claim);
                    }
                }
                self.at = if looked_at == CLAIMS_PER_STEP {
                    At::Claims(end)
                } else {
                    At::Nodes(view.present_nodes().map(Into::into).collect())
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

    fn look_at(
        &mut self,
        view: &ClusterView,
        node: &str,
        machine: &dyn Fn(&str) -> Arc<NodeMachine>,
    ) {
        let version = view.node_version(node);
        let before = self.before.rooms.get(node);
        let mut room = match before {
            Some((of, known)) if of.has_same_devices(version) => known.clone(),
            _ => {
                let machine = machine(node);
                let room = machine.room(view.inventory().state());
                let is_whole = machine.is_whole(&room);
                let stranded = u32::try_from(stranded(view, node).len()).unwrap_or(u32::MAX);
                let mut pods = BTreeMap::new();
                for (pod, devices) in held(view, &machine) {
                    let path = machine.farthest(&devices).map(|reach| reach.path);
                    if !before.is_some_and(|(_, of)| of.pods.contains_key(&pod)) {
                        let demand = demand(devices.iter());
                        self.bound.push(BoundPod { pod: pod.clone(), demand, path });
                    }
                    pods.insert(pod, path);
                }
                NodeRoom { room, is_whole, is_open: true, pods: Arc::new(pods), stranded }
            }
        };
        room.is_open = !view.is_closed(node);
        if room.is_free() {
            domains(view, node).for_each(|domain| *self.domains.entry(domain).or_default() += 1);
        }
        self.rooms.insert(node.to_owned(), (version, room));
        let fabric = view.fabric(node).unwrap_or_default();
        self.fabrics.entry(fabric.to_owned()).or_default().push(node.to_owned());
    }

    /// The expectations after the scan, and the pods that were bound since the previous
    /// scan; none after the first scan.
    pub fn finish(self) -> (Expected, Vec<BoundPod>) {
        let Self { before, at: _, claims, rooms, fabrics, domains, mut bound } = self;
        if !before.is_known {
            // The pods that are already there, in an order that has nothing to do with their shapes.
            bound.sort_unstable_by(|a, b| a.pod.uid.cmp(&b.pod.uid));
        }
        let mut arrivals = before.arrivals.clone();
        // The arrivals of another extender (`Expected::of_metrics`) have the pods that are there.
        if before.is_known || before.arrivals.is_empty() {
            for bound in &bound {
                arrivals.add(bound.demand);
            }
        }
        let learned = arrivals.mix(&before.prior, &before.mix);
        let differs = learned.is_some();
        let mix = learned.unwrap_or_else(|| before.mix.clone());
        let fabrics = fabrics.into_iter().map(|(name, nodes)| {
            let nodes = nodes.iter().filter_map(|node| rooms.get(node));
            let mut room = FabricRoom::new(nodes.map(|(_, room)| room), &mix);
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
        let after = Expected {
            prior,
            arrivals,
            mix,
            mix_version,
            rooms,
            fabrics,
            domains,
            is_known,
            standard,
        };
        (after, bound)
    }
}

/// The pods with GPUs or NICs of a machine, and those devices.
fn held(view: &ClusterView, machine: &NodeMachine) -> BTreeMap<PodName, Vec<DeviceId>> {
    let mut claims: BTreeMap<&ClaimName, Vec<DeviceId>> = BTreeMap::new();
    for device in machine.devices() {
        if let Some(holder) = view.inventory().holder(device) {
            claims.entry(holder).or_default().push(device.clone());
        }
    }
    let mut pods: BTreeMap<PodName, Vec<DeviceId>> = BTreeMap::new();
    for (holder, devices) in claims {
        let (namespace, claim) = (holder.namespace.to_string(), holder.name.to_string());
        let claim = view.claim(&ObjectKey { namespace: namespace.clone(), name: claim });
        if let Some((name, uid)) = claim.and_then(|claim| claim.pod.clone()) {
            let pod = PodName { key: ObjectKey { namespace, name }, uid };
            pods.entry(pod).or_default().extend(devices);
        }
    }
    pods
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
    Level::WITH_WORDS.iter().map(ToString::to_string).chain(["node".to_owned()])
}

/// The demand that these devices correspond to.
fn demand<'d>(devices: impl Iterator<Item = &'d DeviceId>) -> Demand {
    let mut demand = Demand { gpus: 0, nics: 0, nodes: 1 };
    for device in devices {
        if cluster_model::nic_drivers::by_name(&device.driver).is_some() {
            demand.nics += 1;
        } else if cluster_model::gpu_drivers::by_name(&device.driver).is_some() {
            demand.gpus += 1;
        }
    }
    demand
}
