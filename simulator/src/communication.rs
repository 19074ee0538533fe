//! Models how much longer a job runs if its devices are far apart.
//!
//! Part of a job's time is communication. Its speed follows published bandwidths of
//! collective operations: for GB300 from "Azure/AKS" issue 5697, for MI300X from the AKS
//! examples of kubernetes-sigs/dranet.

use topology_graph::PathKind;

/// Bandwidths of collective operations in GB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidths {
    /// If a GPU and its NIC are on different NUMA nodes.
    pub unaligned: f64,
    /// If each GPU and its NIC are on one NUMA node.
    pub aligned: f64,
    /// If a pod has a whole machine, and each GPU and its NIC are on one NUMA node.
    pub whole: f64,
}

/// Published measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Published {
    /// Azure ND GB300 v6: NCCL `all_reduce` over one unaligned NIC, one aligned NIC, two
    /// aligned NICs.
    Gb300,
    /// Azure ND MI300X v5: RCCL over four NICs of the other NUMA node, four of the same,
    /// all eight.
    Mi300x,
}

impl Published {
    /// The figures.
    pub fn bandwidths(self) -> Bandwidths {
        match self {
            Self::Gb300 => Bandwidths { unaligned: 25.0, aligned: 56.0, whole: 112.0 },
            Self::Mi300x => Bandwidths { unaligned: 6.1, aligned: 42.5, whole: 67.7 },
        }
    }
}

/// The model of a job's run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Communication {
    /// The share of a job's time that is communication at full speed.
    pub share: f64,
    /// Its bandwidths.
    pub bandwidths: Bandwidths,
}

impl Communication {
    /// The factor by which a pod with these GPU-NIC paths runs longer than with aligned
    /// devices. The slowest pair holds up all others.
    pub fn slowdown(&self, pairs: &[PathKind], takes_whole_machine: bool) -> f64 {
        if pairs.iter().all(|path| path.satisfies(PathKind::Node)) {
            return 1.0;
        }
        let Bandwidths { unaligned, aligned, whole } = self.bandwidths;
        let best = if takes_whole_machine { whole } else { aligned };
        1.0 - self.share + self.share * best / unaligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_far_pair_slows_the_communication_of_all() {
        let bandwidths = Published::Gb300.bandwidths();
        let communication = Communication { share: 0.25, bandwidths };
        let near = [PathKind::Pix, PathKind::Node];
        let far = [PathKind::Pix, PathKind::Sys];
        assert!((communication.slowdown(&near, false) - 1.0).abs() < 1e-12);
        assert!((communication.slowdown(&far, false) - (0.75 + 0.25 * 56.0 / 25.0)).abs() < 1e-12);
        assert!((communication.slowdown(&far, true) - (0.75 + 0.25 * 112.0 / 25.0)).abs() < 1e-12);
        assert!(communication.slowdown(&[PathKind::Unknown], false) > 1.0);
    }
}
