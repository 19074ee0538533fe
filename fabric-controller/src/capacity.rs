//! The room on each fabric for the pods of groups.

use super::waiting::WaitingReason;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use cluster_model::predict::work_max;
use cluster_model::room::{Ask, Nodes, Placed, Room};
use cluster_model::view::ClusterView;
use dra_allocator::Budget;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The cluster's room, by fabric.
#[derive(Debug)]
pub struct ClusterCapacity<'a> {
    view: &'a ClusterView,
    budget: &'a Budget<'a>,
    fabrics: BTreeMap<String, FabricCapacity<'a>>,
    /// The lowest priority of a pod with a node.
    lowest: Option<i32>,
    /// Whether any pod with a node has anti-affinity.
    has_anti_affinity: bool,
}

/// The nodes of one fabric, and the room there. Clone it to try a hypothesis.
#[derive(Clone, Debug)]
pub struct FabricCapacity<'a> {
    room: Room<'a>,
    budget: &'a Budget<'a>,
    nodes: Arc<[Arc<str>]>,
    counted: HashMap<Arc<Ask>, usize>,
}

impl<'a> ClusterCapacity<'a> {
    /// The current cluster. Tenants write the expressions of claims: `budget` limits what they take,
    /// for each group ([`Self::begin_group`]) and in all.
    pub fn new(view: &'a ClusterView, nodes: &'a Nodes, budget: &'a Budget<'a>) -> Self {
        let room = Room::for_groups(view, nodes, budget);
        let in_flight = room.in_flight();
        let room = room.holding(&in_flight);
        let mut of_fabrics: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        // A node that the watch of nodes has not reported takes no pods yet.
        for name in view.inventory().node_names().filter(|name| nodes.facts(name).is_some()) {
            if let Some(fabric) = view.node_label(name, label::NODE_FABRIC) {
                of_fabrics.entry(fabric.to_owned()).or_default().push(name.clone());
            }
        }
        let fabrics = of_fabrics.into_iter().map(|(name, nodes)| {
            let (room, nodes) = (room.clone(), nodes.into());
            (name, FabricCapacity { room, budget, nodes, counted: HashMap::new() })
        });
        let (fabrics, lowest) = (fabrics.collect(), nodes.lowest_priority());
        Self { view, budget, fabrics, lowest, has_anti_affinity: nodes.has_anti_affinity() }
    }

    /// One fabric, with these nodes, of a room that is supposed.
    pub(crate) fn of_fabric(room: &Room<'a>, name: &str, nodes: Arc<[Arc<str>]>) -> Self {
        let (view, budget) = (room.view(), room.budget());
        let has_anti_affinity = room.nodes().has_anti_affinity();
        let fabric = FabricCapacity { room: room.clone(), budget, nodes, counted: HashMap::new() };
        let fabrics = BTreeMap::from([(name.to_owned(), fabric)]);
        Self { view, budget, fabrics, lowest: None, has_anti_affinity }
    }

    /// Gives the next group its share of work.
    pub fn begin_group(&self) {
        self.budget.renew(work_max(self.view.inventory().node_names().count()));
    }

    /// Why the counts of this group are not known, if they are not.
    pub fn gave_up(&self) -> Option<WaitingReason> {
        match (self.budget.is_stopped(), self.budget.left()) {
            (true, _) => Some(WaitingReason::NotReached),
            (false, 0) => Some(WaitingReason::Expensive),
            (false, _) => None,
        }
    }

    /// The view.
    pub fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// Returns true if a pod with a node has a lower priority than this.
    pub fn has_pods_below(&self, priority: i32) -> bool {
        self.lowest.is_some_and(|lowest| lowest < priority)
    }

    /// Returns true if a pod with a node may keep others away by their labels.
    pub(crate) fn has_anti_affinity(&self) -> bool {
        self.has_anti_affinity
    }

    /// The fabric of a node.
    pub fn fabric_of(&self, node: &str) -> Option<String> {
        self.view.node_label(node, label::NODE_FABRIC).map(str::to_owned)
    }

    /// All fabrics by name.
    pub fn fabrics_mut(&mut self) -> impl Iterator<Item = (&String, &mut FabricCapacity<'a>)> {
        self.fabrics.iter_mut()
    }

    /// One fabric.
    pub fn fabric(&mut self, name: &str) -> Option<&mut FabricCapacity<'a>> {
        self.fabrics.get_mut(name)
    }

    /// The same cluster with nothing in use.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let fabrics = self.fabrics.iter().map(|(name, fabric)| (name.clone(), fabric.emptied()));
        let Self { view, budget, has_anti_affinity, .. } = *self;
        Self { view, budget, fabrics: fabrics.collect(), lowest: None, has_anti_affinity }
    }
}

impl FabricCapacity<'_> {
    fn emptied(&self) -> Self {
        Self { room: self.room.emptied(), counted: HashMap::new(), ..self.clone() }
    }

    /// The pods that were added to the cluster, in order.
    pub(crate) fn placed(&self) -> &[Placed] {
        self.room.placed()
    }

    /// The number of its nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many pods of a kind fit at the same time.
    pub fn count(&mut self, kind: &Arc<Ask>) -> usize {
        if let Some(count) = self.counted.get(kind) {
            return *count;
        }
        let count = self.room.count(kind, self.nodes.iter().map(|node| &**node));
        // With a spent budget the count is too low.
        if self.budget.left() > 0 {
            self.counted.insert(kind.clone(), count);
        }
        count
    }

    /// The nodes that have room for pods of a kind, and for how many at the same time.
    pub(crate) fn count_nodes(&self, kind: &Ask) -> Vec<(&str, usize)> {
        let nodes = self.nodes.iter().map(|node| &**node);
        let places = self.room.places(kind, nodes, usize::MAX).into_iter();
        places.map(|places| (places.node, places.count)).collect()
    }

    /// Adds up to `count` pods of a kind; returns how many fit.
    pub fn take(&mut self, kind: &Arc<Ask>, count: usize) -> usize {
        self.take_in(kind, count, &[])
    }

    /// The same on the nodes that are in all of these domains.
    pub fn take_in(&mut self, kind: &Arc<Ask>, count: usize, within: &[LevelDomain]) -> usize {
        let (nodes, view) = (Arc::clone(&self.nodes), self.room.view());
        let nodes = nodes.iter().map(|node| &**node);
        let fit = self.room.take(kind, count, nodes.filter(|node| is_within(view, node, within)));
        if fit > 0 {
            self.counted.clear();
        }
        fit
    }

    /// If all these pods fit at the same time (first fit, scarcest kind first), returns
    /// how many places of the scarcest kind are left then.
    pub fn fits(&mut self, needs: &[(Arc<Ask>, usize)]) -> Option<usize> {
        let mut scarce: Vec<_> =
            needs.iter().map(|(kind, count)| (self.count(kind), kind, *count)).collect();
        scarce.sort_by_key(|(places, _, _)| *places);
        if scarce.iter().any(|(places, _, count)| places < count) {
            return None;
        }
        let (places, _, count) = *scarce.first()?;
        if scarce.len() > 1 {
            let mut trial = self.clone();
            if scarce.iter().any(|(_, kind, count)| trial.take(kind, *count) < *count) {
                return None;
            }
        }
        Some(places - count)
    }

    /// Whether a node is in all of these domains.
    pub(crate) fn is_within(&self, node: &str, domains: &[LevelDomain]) -> bool {
        is_within(self.room.view(), node, domains)
    }

    /// A label of a node.
    pub(crate) fn label(&self, node: &str, key: &str) -> Option<&str> {
        self.room.view().node_label(node, key)
    }
}

fn is_within(view: &ClusterView, node: &str, domains: &[LevelDomain]) -> bool {
    domains.iter().all(|it| view.node_label(node, it.level.label()) == Some(&*it.name))
}
