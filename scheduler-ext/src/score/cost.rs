//! What an allocation takes from the pods that are still to come.

use super::{Demand, Mix, Room};

/// What is lost for pods still to come. Smaller is better: first the loss, then what
/// stays free on the node, since a node that is nearly full is the last that could
/// become whole again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    /// Devices that pods of the mix can no longer get, in millionths of a device: over
    /// shapes and levels, the share of the shape times its GPUs times how many pods of
    /// it less find their devices in one cell of the level.
    pub loss: u64,
    /// GPUs, or NICs on a node without any, that are free on the node afterwards.
    pub left: u32,
}

/// What gangs can have of the fabric that a node is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fabric {
    /// Nodes of the fabric, this one counted, on which nothing is in use before the
    /// allocation; 0 where the node is on none.
    pub whole_nodes: u32,
    /// Whether the allocation takes from a node on which nothing was in use.
    pub breaks_one: bool,
}

impl Cost {
    /// What a node, free as `before`, loses by an allocation that leaves `after`.
    pub fn of(before: &Room, after: &Room, fabric: Fabric, mix: &Mix) -> Self {
        let lost = |(demand, share): &(Demand, u32)| {
            u64::from(*share) * demand.worth() * u64::from(lost_on_node(before, after, *demand))
        };
        let pods = mix.shares().iter().filter(|(demand, _)| demand.nodes == 1);
        let left = after.node();
        let has_gpus = before.node().gpus > 0;
        Self {
            loss: pods.map(lost).sum::<u64>() + fabric.loss(mix),
            left: if has_gpus { left.gpus } else { left.nics },
        }
    }
}

/// How many pods of a shape less fit, over all levels.
fn lost_on_node(before: &Room, after: &Room, demand: Demand) -> u32 {
    let levels = before.fits(demand).zip(after.fits(demand));
    levels.map(|(before, after)| before.saturating_sub(after)).sum()
}

impl Fabric {
    /// What gangs of the mix lose, as [`Cost::loss`] counts it.
    pub fn loss(self, mix: &Mix) -> u64 {
        let gangs = mix.shares().iter().filter(|(demand, _)| demand.nodes > 1);
        let lost = |(demand, share): &(Demand, u32)| {
            u64::from(*share) * demand.worth() * u64::from(self.lost(demand.nodes))
        };
        gangs.map(lost).sum()
    }

    /// How many gangs of so many whole nodes less fit on the fabric.
    fn lost(self, nodes: u32) -> u32 {
        let after = self.whole_nodes.saturating_sub(u32::from(self.breaks_one));
        self.whole_nodes / nodes - after / nodes
    }
}
