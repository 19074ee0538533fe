//! What is expected of the cluster: the pods that it runs, and the room on its fabrics.

use crate::score::{Demand, Mix, Room};
use cluster_model::predict::OpenClaim;
use cluster_model::view::{NodeVersion, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Millionths of all pods from which on a shape is common.
const COMMON: u32 = 10_000;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
}

/// What is expected.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// What was configured, for as long as little is learned.
    pub(crate) prior: Mix,
    pub(crate) mix: Mix,
    pub(crate) mix_version: u64,
    /// What is free, by node.
    pub(crate) rooms: HashMap<String, (NodeVersion, NodeRoom)>,
    pub(crate) fabrics: BTreeMap<String, FabricRoom>,
    /// Whether the cluster was looked at.
    pub(crate) is_known: bool,
    /// The claim that most claims are equal to.
    pub(crate) standard: Option<Arc<OpenClaim>>,
}

/// What is free on a node, and who has the rest.
#[derive(Clone, Debug)]
pub(crate) struct NodeRoom {
    pub(crate) room: Room,
    /// The pods that have GPUs or NICs there.
    pub(crate) pods: Arc<BTreeSet<PodName>>,
    /// Whether nothing is in use.
    pub(crate) is_whole: bool,
}

/// What is free on a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricRoom {
    /// Nodes on which nothing is in use.
    pub whole_nodes: u32,
    /// How many more pods of each common shape find each GPU with its NICs in one cell, by
    /// level: those of [`topology_graph::Level::ALL`] and then the whole node. Of gangs
    /// there is one level: how many more find enough whole nodes on the fabric.
    pub pods: BTreeMap<Demand, Vec<u32>>,
}

impl FabricRoom {
    /// What is free on these nodes.
    pub(crate) fn of<'n>(nodes: impl Iterator<Item = &'n NodeRoom>, mix: &Mix) -> Self {
        let mut all = Self::default();
        for node in nodes {
            all.whole_nodes += u32::from(node.is_whole);
            let common = |(demand, share): &&(Demand, u32)| demand.nodes == 1 && *share >= COMMON;
            for (demand, _) in mix.shares().iter().filter(common) {
                let fits: Vec<u32> = node.room.fits(*demand).collect();
                let pods = all.pods.entry(*demand).or_default();
                pods.resize(fits.len(), 0);
                pods.iter_mut().zip(fits).for_each(|(pods, fits)| *pods += fits);
            }
        }
        for (demand, _) in mix.shares().iter().filter(|(demand, _)| demand.nodes > 1) {
            all.pods.insert(*demand, vec![all.whole_nodes / demand.nodes]);
        }
        all
    }
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

    /// The claim that most claims with GPUs or NICs are equal to; none where there is none.
    pub fn standard(&self) -> Option<&Arc<OpenClaim>> {
        self.standard.as_ref()
    }

    /// What is free on a node, cell by cell.
    pub fn room(&self, node: &str) -> Option<&Room> {
        self.rooms.get(node).map(|(_, of)| &of.room)
    }

    /// What is free on each fabric; of nodes without one under the empty name.
    pub fn fabrics(&self) -> &BTreeMap<String, FabricRoom> {
        &self.fabrics
    }
}
