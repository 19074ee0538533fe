//! How many pods find near NICs on a node that binds NICs late, whatever GPUs the kubelet chooses.

use super::{LateDemand, LateNode, waiting};
use crate::topology_policy::{GpuGroups, TopologyPolicy};
use crate::view::ClusterView;
use dra_allocator::AllocatedState;
use topology_graph::Level;

impl<'a> LateNode<'a> {
    /// How many of up to `most` such pods find near NICs on the node for certain, whatever GPUs the
    /// kubelet chooses for them and for the pods that have places and have not started, in whatever order
    /// they start; `None` as for [`Self::new`]. Never too many, and too few where pods of several kinds
    /// start, or NICs do not divide evenly.
    pub fn surely_near(
        view: &'a ClusterView,
        node: &str,
        in_use: &AllocatedState,
        (demand, most): (LateDemand, usize),
    ) -> Option<usize> {
        let (mut late, claims) = Self::now(view, node, in_use)?;
        late.groups = GpuGroups::new(TopologyPolicy::None, late.topology, &late.free_gpus);
        let mut others: Vec<LateDemand> = waiting(&claims).collect();
        if late.assumed > 0 {
            // What is known of taken places without a claim is their number.
            let (gpus, nics) = (late.assumed, late.assumed);
            others.push(LateDemand { gpus, nics, within: demand.within });
        }
        // Without GPUs, nothing says what is near.
        let has_gpus = others.iter().chain([&demand]).all(|it| it.gpus > 0);
        Some(if !has_gpus || !late.all_are_near(demand) {
            0
        } else if others.is_empty() {
            late.sure_alone(demand, most)
        } else {
            late.sure_beside(&others, demand, most)
        })
    }

    /// The number beside no other pod, on a node where the first is near.
    fn sure_alone(&self, demand: LateDemand, most: usize) -> usize {
        let LateDemand { gpus, nics, within } = demand;
        // A NIC serves one pod, but the pool would share what is left of it.
        let is_shared = nics < gpus && !gpus.is_multiple_of(nics.max(1));
        let most = if is_shared { most.min(1) } else { most };
        // NICs that do not divide evenly are counted as if each GPU had the most.
        let per_pod = if nics < gpus { nics } else { gpus * nics.div_ceil(gpus) };
        let are_near = (2..=most).take_while(|pods| {
            self.all_are_near(LateDemand { gpus: pods * gpus, nics: pods * per_pod, within })
        });
        are_near.last().unwrap_or(1).min(most)
    }

    /// The number beside these pods. All are counted as if each GPU had the most NICs of any of them.
    fn sure_beside(&self, others: &[LateDemand], demand: LateDemand, most: usize) -> usize {
        let per_gpu = others.iter().chain([&demand]).map(|it| it.nics.div_ceil(it.gpus)).max();
        let per_gpu = per_gpu.unwrap_or_default();
        let of_others: usize = others.iter().map(|it| it.gpus).sum();
        let are_near = (1..=most).take_while(|pods| {
            let gpus = of_others + pods * demand.gpus;
            self.all_are_near(LateDemand { gpus, nics: gpus * per_gpu, within: demand.within })
        });
        are_near.last().unwrap_or_default()
    }

    /// Whether near NICs are free for each choice of the kubelet.
    fn all_are_near(&self, demand: LateDemand) -> bool {
        let chance = self.chance(demand, demand.within.unwrap_or(Level::Numa));
        chance.is_some_and(|chance| chance.served == chance.all)
    }
}
