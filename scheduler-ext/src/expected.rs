//! What is expected of the cluster: the pods that it runs, learned from its claims,
//! and the room for gangs on its fabrics.

use crate::machine::Machine;
use crate::score::{Demand, Mix, Room};
use cluster_model::view::{ClusterView, NodeVersion};
use dra_allocator::{ClaimName, DeviceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How many claims the configured mix counts for beside what is learned.
const PRIOR: u32 = 100;

/// By how many millionths a share must differ before costs are counted anew.
const DIFFERENCE: u32 = 20_000;

/// What is expected.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// What was configured, for as long as little is learned.
    prior: Mix,
    mix: Mix,
    mix_version: u64,
    /// What is free, by node.
    rooms: HashMap<String, (NodeVersion, NodeRoom)>,
    fabrics: BTreeMap<String, FabricRoom>,
}

/// What is free on a node.
#[derive(Clone, Debug)]
struct NodeRoom {
    room: Room,
    /// Whether nothing is in use.
    is_whole: bool,
}

/// What is free on a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricRoom {
    /// Nodes on which nothing is in use.
    pub whole_nodes: u32,
    /// How many more pods of each shape find their devices on one of its nodes.
    pub pods: BTreeMap<Demand, u32>,
}

impl Expected {
    /// As configured.
    pub fn new(prior: Mix) -> Self {
        Self { mix: prior.clone(), prior, ..Self::default() }
    }

    /// The shapes of pods with their shares.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// A number that changes with the mix.
    pub fn mix_version(&self) -> u64 {
        self.mix_version
    }

    /// Nodes of a fabric on which nothing is in use.
    pub fn whole_nodes(&self, fabric: &str) -> u32 {
        self.fabrics.get(fabric).map_or(0, |fabric| fabric.whole_nodes)
    }

    /// What is free on each fabric; of nodes without one under the empty name.
    pub fn fabrics(&self) -> &BTreeMap<String, FabricRoom> {
        &self.fabrics
    }

    /// The same after a look at the cluster.
    #[must_use]
    pub fn learn(&self, view: &ClusterView, machine: &dyn Fn(&str) -> Arc<Machine>) -> Self {
        let mix = learned(view, &self.prior);
        let differs = self.mix.differs(&mix, DIFFERENCE);
        let mix = if differs { mix } else { self.mix.clone() };
        let rooms = self.rooms(view, machine);
        let fabrics = fabrics(view, &rooms, &mix);
        let mix_version = self.mix_version + u64::from(differs);
        Self { prior: self.prior.clone(), mix, mix_version, rooms, fabrics }
    }

    /// What is free on every node.
    fn rooms(
        &self,
        view: &ClusterView,
        machine: &dyn Fn(&str) -> Arc<Machine>,
    ) -> HashMap<String, (NodeVersion, NodeRoom)> {
        let state = view.inventory().state();
        let room = |node: &Arc<str>| {
            let version = view.node_version(node);
            let room = match self.rooms.get(&**node) {
                Some((of, known)) if *of == version => known.clone(),
                _ => {
                    let machine = machine(node);
                    let room = machine.room(state);
                    let is_whole = machine.has_devices() && room.node() == machine.whole().node();
                    NodeRoom { room, is_whole }
                }
            };
            ((**node).to_owned(), (version, room))
        };
        view.inventory().node_names().map(room).collect()
    }
}

fn fabrics(
    view: &ClusterView,
    rooms: &HashMap<String, (NodeVersion, NodeRoom)>,
    mix: &Mix,
) -> BTreeMap<String, FabricRoom> {
    let mut fabrics: BTreeMap<String, FabricRoom> = BTreeMap::new();
    for (node, (_, NodeRoom { room, is_whole })) in rooms {
        let name = view.fabric(node).unwrap_or_default();
        let fabric = fabrics.entry(name.to_owned()).or_default();
        fabric.whole_nodes += u32::from(*is_whole);
        for (demand, _) in mix.shares().iter().filter(|(demand, _)| demand.nodes == 1) {
            *fabric.pods.entry(*demand).or_default() += room.node().fits(*demand);
        }
    }
    fabrics
}

/// The shapes of all claims that hold GPUs or NICs, and the configured mix beside them.
fn learned(view: &ClusterView, prior: &Mix) -> Mix {
    let mut counts: BTreeMap<Demand, u32> = BTreeMap::new();
    for (key, _) in view.claims().filter(|(_, claim)| claim.is_allocated) {
        let name = ClaimName::new(key.namespace.as_str(), key.name.as_str());
        let demand = demand(view.inventory().held_by(&name));
        *counts.entry(demand).or_default() += 1;
    }
    let claims: u32 = counts.values().sum();
    // No claim tells of a gang: the share of gangs stays as configured.
    let claims_for = |demand: &Demand| if demand.nodes > 1 { claims + PRIOR } else { PRIOR };
    // Shares are millionths, counts thousandths of a claim.
    let prior = prior.shares().iter().map(|(demand, share)| {
        let count = u64::from(*share) * u64::from(claims_for(demand)) / 1_000;
        (*demand, u32::try_from(count).unwrap_or(u32::MAX))
    });
    let counts = counts.into_iter().map(|(demand, count)| (demand, count.saturating_mul(1_000)));
    Mix::new(prior.chain(counts))
}

/// What a claim has.
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
