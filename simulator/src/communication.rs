//! Models how much longer a job runs if its devices are far apart.
//!
//! Part of a job's time is communication. Its speed follows published bandwidths: for GB300 from
//! "Azure/AKS" issue 5697, for MI300X and H100 from the AKS examples of kubernetes-sigs/dranet
//! f258477c.

use topology_graph::PathKind;

use crate::machine::SimulatedMachine;

/// PCI vendor id of AMD.
const PCI_VENDOR_AMD: u16 = 0x1002;
/// PCI device id of NVIDIA's H100 SXM5.
const PCI_DEVICE_H100: u16 = 0x2330;

/// The share of communication that explains the published step times of training on H100
/// (`examples/distributed_training` of kubernetes-sigs/dranet f258477c): 60.951 ms unaligned
/// instead of 55.496 ms, with the bandwidths of [`PublishedBandwidths::H100`].
pub const SHARE: f64 = 0.23;

/// Bandwidths in GB/s.
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
pub enum PublishedBandwidths {
    /// Azure ND GB300 v6: NCCL `all_reduce` over one unaligned NIC, one aligned NIC, two
    /// aligned NICs.
    Gb300,
    /// Azure ND MI300X v5: RCCL over four NICs of the other NUMA node, four of the same,
    /// all eight.
    Mi300x,
    /// Azure ND H100 v5: reads of 1 GiB by NIXL between two pods of four GPUs, over four NICs of
    /// the other NUMA node, four of the same (`examples/nixl-kv-transfer`). Nothing is published
    /// for a whole machine, which always has aligned NICs.
    H100,
}

impl PublishedBandwidths {
    /// The measurements that are nearest to a machine: those of AMD's GPUs, of H100, or otherwise
    /// of GB300.
    pub fn new(machine: &SimulatedMachine) -> Self {
        match machine.topology.gpus().first() {
            Some(gpu) if gpu.vendor == PCI_VENDOR_AMD => Self::Mi300x,
            Some(gpu) if gpu.device == PCI_DEVICE_H100 => Self::H100,
            _ => Self::Gb300,
        }
    }

    /// The figures.
    pub fn bandwidths(self) -> Bandwidths {
        match self {
            Self::Gb300 => Bandwidths { unaligned: 25.0, aligned: 56.0, whole: 112.0 },
            Self::Mi300x => Bandwidths { unaligned: 6.1, aligned: 42.5, whole: 67.7 },
            Self::H100 => Bandwidths { unaligned: 27.54, aligned: 39.07, whole: 39.07 },
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
    fn the_share_explains_the_published_steps() {
        let communication =
            Communication { share: SHARE, bandwidths: PublishedBandwidths::H100.bandwidths() };
        let slowdown = communication.slowdown(&[PathKind::Sys], false);
        assert!((slowdown - 60.951 / 55.496).abs() < 0.005, "{slowdown}");
    }

    #[test]
    fn machines_have_the_measurements_of_their_gpus() {
        for (name, published) in [
            ("azure-gb300", PublishedBandwidths::Gb300),
            ("azure-mi300x", PublishedBandwidths::Mi300x),
            ("azure-ndh100v5", PublishedBandwidths::H100),
            ("dgx-h100", PublishedBandwidths::H100),
        ] {
            assert_eq!(
                PublishedBandwidths::new(&SimulatedMachine::load(name).unwrap()),
                published,
                "{name}"
            );
        }
    }

    #[test]
    fn one_far_pair_slows_the_communication_of_all() {
        let bandwidths = PublishedBandwidths::Gb300.bandwidths();
        let communication = Communication { share: 0.25, bandwidths };
        let near = [PathKind::Pix, PathKind::Node];
        let far = [PathKind::Pix, PathKind::Sys];
        assert!((communication.slowdown(&near, false) - 1.0).abs() < 1e-12);
        assert!((communication.slowdown(&far, false) - (0.75 + 0.25 * 56.0 / 25.0)).abs() < 1e-12);
        assert!((communication.slowdown(&far, true) - (0.75 + 0.25 * 112.0 / 25.0)).abs() < 1e-12);
        assert!(communication.slowdown(&[PathKind::Unknown], false) > 1.0);
    }
}
