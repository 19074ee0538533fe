//! Expectations about the cluster: the pods that it runs, and the free capacity of its
//! fabrics.

use crate::arrivals::Arrivals;
use crate::score::{Demand, FreeCells, Mix};
use cluster_model::fabric_level::{FabricLevel, LevelDomain};
use cluster_model::room::OpenClaim;
use cluster_model::view::{ClusterView, NodeVersion, ObjectKey};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use topology_graph::PathKind;

/// Share of all pods, in millionths, from which a shape is common.
const COMMON: u32 = 10_000;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
}

/// The current expectations.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The configured mix, used until enough is learned.
    pub(crate) prior: Mix,
    /// The pods that came most recently.
    pub(crate) arrivals: Arrivals,
    pub(crate) mix: Mix,
    pub(crate) mix_version: u64,
    /// Free capacity by node.
    pub(crate) rooms: HashMap<String, (NodeVersion, NodeRoom)>,
    pub(crate) fabrics: BTreeMap<String, FabricRoom>,
    /// The number of nodes with nothing in use, by domain of a level below the fabric.
    pub(crate) domains: BTreeMap<LevelDomain, u32>,
    /// Whether the cluster has been scanned.
    pub(crate) is_known: bool,
    /// The most common claim.
    pub(crate) standard: Option<Arc<OpenClaim>>,
}

/// What is free on a node, and which pods have the rest.
#[derive(Clone, Debug)]
pub(crate) struct NodeRoom {
    pub(crate) room: FreeCells,
    /// The pods with GPUs or NICs there, with the farthest path of the pairs of each.
    pub(crate) pods: Arc<BTreeMap<PodName, Option<PathKind>>>,
    /// The number of free GPUs near which no NIC is left.
    pub(crate) stranded: u32,
    /// Whether nothing is in use.
    pub(crate) is_whole: bool,
    /// Whether the node takes new pods: it is not cordoned, nor not ready.
    pub(crate) is_open: bool,
}

/// What is free on a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricRoom {
    /// Nodes on which nothing is in use, without those that take no pods.
    pub whole_nodes: u32,
    /// Free GPUs near which no NIC is left.
    pub stranded: u32,
    /// How many more pods of each common shape could have each GPU and its NICs in one
    /// cell, by level: those of [`topology_graph::Level::WITH_WORDS`], then the whole node.
    /// Gangs have a single level: how many more find enough whole nodes on the fabric. Nodes that take no
    /// pods have no room.
    pub pods: BTreeMap<Demand, Vec<u32>>,
}

impl FabricRoom {
    /// Sums up what is free on these nodes.
    pub(crate) fn new<'n>(nodes: impl Iterator<Item = &'n NodeRoom>, mix: &Mix) -> Self {
        let mut all = Self::default();
        for node in nodes {
            all.whole_nodes += u32::from(node.is_free());
            all.stranded += node.stranded;
            for (demand, share) in mix.shares() {
                match demand.nodes {
                    1 if *share >= COMMON && !node.is_open => {
                        all.add(*demand, node.room.fits(*demand).map(|_| 0).collect());
                    }
                    1 if *share >= COMMON => all.add(*demand, node.room.fits(*demand).collect()),
                    1 => {}
                    _ => all.add(*demand, vec![u32::from(node.serves_a_member(*demand))]),
                }
            }
        }
        for (demand, gangs) in all.pods.iter_mut().filter(|(demand, _)| demand.nodes > 1) {
            for nodes in gangs {
                *nodes /= demand.nodes;
            }
        }
        all
    }

    fn add(&mut self, demand: Demand, fits: Vec<u32>) {
        let pods = self.pods.entry(demand).or_default();
        pods.resize(fits.len(), 0);
        pods.iter_mut().zip(fits).for_each(|(pods, fits)| *pods += fits);
    }
}

impl NodeRoom {
    /// Whether nothing is in use, and pods can come.
    pub(crate) fn is_free(&self) -> bool {
        self.is_whole && self.is_open
    }

    /// Whether nothing is in use, and a pod of the gang finds its devices. A node that has lost a
    /// NIC can be whole and too small.
    fn serves_a_member(&self, gang: Demand) -> bool {
        self.is_free() && self.room.fits(Demand { nodes: 1, ..gang }).last() > Some(0)
    }
}

/// The domains of a node.
pub(crate) fn domains<'v>(
    view: &'v ClusterView,
    node: &'v str,
) -> impl Iterator<Item = LevelDomain> + use<'v> {
    FabricLevel::ALL.into_iter().filter_map(move |level| {
        let name = view.node_label(node, level.label())?.to_owned();
        Some(LevelDomain { level, name })
    })
}

impl Expected {
    /// Starts with the configured mix.
    pub fn new(prior: Mix) -> Self {
        Self { mix: prior.clone(), prior, ..Self::default() }
    }

    /// The shapes of pods and their shares.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// A number that changes with the mix.
    pub fn mix_version(&self) -> u64 {
        self.mix_version
    }

    /// The numbers of nodes on which nothing is in use: on the fabric of a node, and in its domain of
    /// each level. `node` is one of them, even if the last scan saw something in use there.
    pub fn whole_nodes_with(&self, node: &str, view: &ClusterView) -> Vec<u32> {
        let is_counted = self.rooms.get(node).is_some_and(|(_, of)| of.is_free());
        let of_fabric = view
            .fabric(node)
            .map(|fabric| self.fabrics.get(fabric).map_or(0, |fabric| fabric.whole_nodes));
        let of_domains = domains(view, node);
        let of_domains = of_domains.map(|domain| self.domains.get(&domain).copied().unwrap_or(0));
        let known = of_fabric.into_iter().chain(of_domains);
        known.map(|known| known + u32::from(!is_counted)).collect()
    }

    /// The most common claim with GPUs or NICs; `None` if there is none.
    pub fn standard(&self) -> Option<&Arc<OpenClaim>> {
        self.standard.as_ref()
    }

    /// What is free on a node, cell by cell.
    pub fn room(&self, node: &str) -> Option<&FreeCells> {
        self.rooms.get(node).map(|(_, of)| &of.room)
    }

    /// What is free on each fabric. Nodes without a fabric are under the empty name.
    pub fn fabrics(&self) -> &BTreeMap<String, FabricRoom> {
        &self.fabrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Free;

    /// One of three empty nodes has lost a NIC: neither single pods nor gangs of whole nodes count it.
    #[test]
    fn gangs_count_the_nodes_that_serve_their_pods() {
        let node = |nics: u32, is_whole: bool| NodeRoom {
            room: FreeCells::new(vec![vec![Free::new(8, nics)]]),
            pods: Arc::default(),
            stranded: 8 - nics,
            is_whole,
            is_open: true,
        };
        let cordoned = NodeRoom { is_open: false, ..node(8, true) };
        let mix: Mix = "8x8=1,2*8x8=1,2*8x7=1".parse().unwrap();
        for (nodes, single, gangs_of_8, gangs_of_7) in [
            (vec![node(8, true), node(8, true), node(7, true)], 2, 1, 1),
            (vec![node(8, true), node(7, true)], 1, 0, 1),
            (vec![node(7, true), node(7, true)], 0, 0, 1),
            (vec![node(8, true), node(8, false)], 2, 0, 0),
            (vec![node(8, true), cordoned], 1, 0, 0),
        ] {
            let room = FabricRoom::new(nodes.iter(), &mix);
            let of = |gpus, nics, nodes| room.pods[&Demand { gpus, nics, nodes }].clone();
            assert_eq!(room.stranded, nodes.iter().map(|node| node.stranded).sum::<u32>());
            assert_eq!(of(8, 8, 1), [single], "{room:?}");
            assert_eq!(of(8, 8, 2), [gangs_of_8], "{room:?}");
            assert_eq!(of(8, 7, 2), [gangs_of_7], "{room:?}");
        }
    }
}
