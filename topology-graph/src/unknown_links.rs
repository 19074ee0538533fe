//! GPUs whose NVLinks are unknown, so that only their PCIe distance is known.

use std::collections::BTreeSet;

use crate::nvlink::NvLinks;
use crate::vendor::AMD;
use crate::{Gpu, PathKind, Topology};

impl Topology {
    /// The GPUs that may be connected by NVLinks to another one of their model, without a source
    /// that says so. The paths between them are PCIe paths.
    pub fn gpus_with_unknown_nvlinks(&self) -> Vec<&Gpu> {
        let candidates: Vec<&Gpu> = self
            .gpus()
            .iter()
            .filter(|gpu| NvLinks::new((gpu.vendor, gpu.device)) != NvLinks::Absent)
            .collect();
        let told: BTreeSet<_> = candidates
            .iter()
            .filter(|a| {
                let mut paths = self.gpus().iter().map(|b| self.path(a.address, b.address));
                paths.any(|path| matches!(path, PathKind::NvLink(_) | PathKind::Xgmi))
            })
            .map(|gpu| gpu.address)
            .collect();
        candidates
            .iter()
            .copied()
            .filter(|a| {
                let mut others = candidates.iter().filter(|b| b.address != a.address);
                !told.contains(&a.address)
                    && others.any(|b| (b.vendor, b.device) == (a.vendor, a.device))
            })
            .collect()
    }

    /// A sentence about them for people, if there are any.
    pub(crate) fn note_on_nvlinks(&self) -> Option<String> {
        let gpus = self.gpus_with_unknown_nvlinks();
        let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        let nvlinks = (!names.is_empty()).then(|| {
            format!(
                "NVLinks between these GPUs are unknown, their paths here are over PCIe only: {}.\n\
                 The kernel does not show NVLinks; `nvidia-smi topo -m` does.\n",
                names.join(", ")
            )
        });
        nvlinks.or_else(|| self.note_on_xgmi())
    }

    /// The same about GPUs of AMD whose driver was not read.
    fn note_on_xgmi(&self) -> Option<String> {
        let amd: Vec<&Gpu> = self.gpus().iter().filter(|gpu| gpu.vendor == AMD).collect();
        let is_known = amd.iter().any(|gpu| {
            amd.iter().any(|other| self.path(gpu.address, other.address) == PathKind::Xgmi)
        });
        let names: Vec<&str> = amd.iter().map(|gpu| gpu.name.as_str()).collect();
        (names.len() > 1 && !is_known).then(|| {
            format!(
                "XGMI between these GPUs is unknown, their paths here are over PCIe only: {}.\n\
                 Its source is /sys/class/kfd; `amd-smi topology` shows it too.\n",
                names.join(", ")
            )
        })
    }
}
