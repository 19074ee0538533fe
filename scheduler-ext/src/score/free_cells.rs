//! Free devices of a node, by cell and level.

use super::Demand;

/// Free devices of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Free {
    /// Whole GPUs that no pod has.
    pub gpus: u32,
    /// NICs that no pod has.
    pub nics: u32,
    /// The ports of these NICs. Virtual functions of one port share its link, so a pod gets those of
    /// different ports.
    pub ports: u32,
}

/// The free devices of a node: at each level, near to far, those of each cell. The
/// last level is the node itself, one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeCells {
    levels: Vec<Vec<Free>>,
}

impl Free {
    /// This many GPUs and NICs, each with a port of its own.
    pub const fn new(gpus: u32, nics: u32) -> Self {
        Self { gpus, nics, ports: nics }
    }

    /// How many pods of a shape find all their devices in the cell.
    pub fn fits(self, demand: Demand) -> u32 {
        let of_gpus = self.gpus.checked_div(demand.gpus);
        let nics = if demand.nics <= self.ports { self.nics } else { 0 };
        let of_nics = nics.checked_div(demand.nics);
        // A kind of device that is not requested sets no limit.
        of_gpus.into_iter().chain(of_nics).min().unwrap_or(0)
    }
}

impl FreeCells {
    /// The cells by level, near to far; the last level is the whole node.
    pub fn new(levels: Vec<Vec<Free>>) -> Self {
        Self { levels }
    }

    /// The levels, near to far, with their cells.
    pub fn levels(&self) -> &[Vec<Free>] {
        &self.levels
    }

    /// What is free on the whole node.
    pub fn node(&self) -> Free {
        self.levels.last().and_then(|cells| cells.first()).copied().unwrap_or_default()
    }

    /// How many cells of all levels have all their GPUs and NICs here, both of `whole`, and fewer `after`.
    pub fn broken(&self, after: &Self, whole: &Self) -> u32 {
        let levels = self.levels.iter().zip(&after.levels).zip(&whole.levels);
        let cells = levels.flat_map(|((before, after), whole)| before.iter().zip(after).zip(whole));
        let broken = cells.filter(|((before, after), whole)| {
            before == whole && after != whole && whole.gpus > 0 && whole.nics > 0
        });
        u32::try_from(broken.count()).unwrap_or(u32::MAX)
    }

    /// How many pods of a shape could have each GPU and its NICs in one cell, for each
    /// level.
    pub fn fits(&self, demand: Demand) -> impl Iterator<Item = u32> {
        let (unit, count) = demand.units();
        let has_ports = demand.nics <= self.node().ports;
        self.levels.iter().map(move |cells| {
            let units = cells.iter().map(|cell| cell.fits(unit)).sum::<u32>();
            if has_ports { units / count } else { 0 }
        })
    }
}
