//! What pods use of a cluster besides the devices that the view knows.

use cluster_model::predict::budget;
use cluster_model::room::{Images, Nodes, Room};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{Budget, ClaimAllocation};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

/// The nodes with their pods, and devices that pods will get.
#[derive(Debug)]
pub(crate) struct InUse {
    pub(crate) nodes: Nodes,
    /// The images on nodes.
    pub(crate) images: Images,
    in_flight: Vec<ClaimAllocation>,
}

impl InUse {
    pub(crate) fn new(nodes: Nodes, images: Images, view: &ClusterView) -> Self {
        let in_flight = Room::new(view, &nodes, &budget(view)).in_flight();
        Self { nodes, images, in_flight }
    }

    /// The room that is left, in which claims that are looked for may take this much work.
    pub(crate) fn room<'a>(&'a self, view: &'a ClusterView, budget: &'a Budget<'a>) -> Room<'a> {
        Room::new(view, &self.nodes, budget).holding(&self.in_flight)
    }
}

/// Removes a pod that ends, with the claims that only it uses.
pub(crate) fn leave(view: &mut ClusterView, nodes: &mut Nodes, pod: &ObjectKey) {
    nodes.delete_pod(pod);
    let own = view.claims().filter(|(claim, known)| {
        let user = known.pod.as_ref().is_some_and(|(user, _)| *user == pod.name);
        user && claim.namespace == pod.namespace
    });
    let own: Vec<ObjectKey> = own.map(|(claim, _)| claim.clone()).collect();
    for claim in &own {
        Index::<ResourceClaim>::delete(view, claim);
    }
    Index::<Pod>::delete(view, pod);
}
