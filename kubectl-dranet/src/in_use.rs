//! What pods use of a cluster besides the devices that the view knows.

use cluster_model::predict::budget;
use cluster_model::room::{Nodes, Room};
use cluster_model::view::ClusterView;
use dra_allocator::{Budget, ClaimAllocation};

/// The nodes with their pods, and devices that pods will get.
#[derive(Debug)]
pub(crate) struct InUse {
    pub(crate) nodes: Nodes,
    in_flight: Vec<ClaimAllocation>,
}

impl InUse {
    pub(crate) fn new(nodes: Nodes, view: &ClusterView) -> Self {
        let in_flight = Room::new(view, &nodes, &budget(view)).in_flight();
        Self { nodes, in_flight }
    }

    /// The room that is left, in which claims that are looked for may take this much work.
    pub(crate) fn room<'a>(&'a self, view: &'a ClusterView, budget: &'a Budget<'a>) -> Room<'a> {
        Room::new(view, &self.nodes, budget).holding(&self.in_flight)
    }
}
