//! Pairs of a GPU and its NIC that cannot use GPUDirect RDMA, from what node-driver reads about
//! ports, IOMMU and the GPU's driver.

use super::finding::Findings;
use super::scene::Scene;
use crate::text::counted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use topology_graph::{Gdr, NodeTopology, Pair, PciAddress, ShapeHash, Topology};

/// The pairs of the machines of a shape, and the GPUs by number.
struct Paired {
    gpus: Vec<PciAddress>,
    pairs: Vec<Pair>,
}

/// The nodes with a verdict.
#[derive(Default)]
struct Stopped<'v> {
    nodes: BTreeSet<&'v str>,
    /// The pairs of the first node.
    pairs: Vec<Pair>,
}

/// Returns the cause of a verdict and what to do; `None` if the verdict blocks nothing, or if it is
/// reported with the links.
pub(crate) fn remedy(verdict: Gdr) -> Option<(&'static str, &'static str)> {
    match verdict {
        Gdr::AcsRedirect => Some((
            "a PCIe port between them sends requests of one device to another upstream, through the \
             root complex (ACS)",
            "if no virtual machine uses these devices, disable ACS in the firmware's setup, or \
             clear the ACS control of each port at boot (`setpci -s PORT ECAP_ACS+6.w=0`)",
        )),
        Gdr::AtsMissing => Some((
            "the PCIe ports between them pass only translated addresses (ACS), and the NIC does not \
             translate",
            "enable ATS in the NIC's firmware (`mlxconfig -d ADDRESS set ATS_ENABLED=1`), and reboot \
             the machine",
        )),
        Gdr::Iommu => Some((
            "the path between them crosses a root complex whose IOMMU translates",
            "boot the kernel with `iommu=pt` (x86) or `iommu.passthrough=1` (arm64)",
        )),
        Gdr::NoPeerMemory => Some((
            "the GPU's driver exposes no peer memory: nvidia_peermem is not loaded and the driver \
             does not export dma-buf",
            "load `nvidia_peermem`, or install NVIDIA's open kernel modules",
        )),
        Gdr::Ok | Gdr::DegradedLink | Gdr::Unknown => None,
    }
}

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let view = scene.view;
    let mut shapes: HashMap<ShapeHash, Paired> = HashMap::new();
    let mut verdicts: BTreeMap<Gdr, Stopped<'_>> = BTreeMap::new();
    for (node, object) in view.node_topologies().filter(|(name, _)| !view.is_remembered(name)) {
        let Some(graph) = view.topology(node) else { continue };
        let paired = shapes.entry(graph.shape()).or_insert_with(|| Paired::new(graph));
        for (verdict, pairs) in paired.verdicts(object) {
            let stopped = verdicts.entry(verdict).or_default();
            if stopped.nodes.is_empty() {
                stopped.pairs = pairs;
            }
            stopped.nodes.insert(node);
        }
    }
    for (verdict, stopped) in verdicts {
        let (Some((why, what_to_do)), Some(first)) = (remedy(verdict), stopped.pairs.first())
        else {
            continue;
        };
        let message = format!(
            "has GPUs that their NICs cannot reach directly (GPUDirect RDMA, {verdict}): {why}; {} \
             on the first node, such as GPU {} with NIC {}; {what_to_do}",
            counted(stopped.pairs.len(), "pair"),
            first.gpu,
            first.nic,
        );
        found.on(&stopped.nodes, message);
    }
}

impl Paired {
    fn new(graph: &Topology) -> Self {
        let gpus = graph.gpus().iter().map(|gpu| gpu.address).collect();
        Self { gpus, pairs: graph.pairs() }
    }

    /// The pairs of a node by their published verdict.
    fn verdicts(&self, object: &NodeTopology) -> BTreeMap<Gdr, Vec<Pair>> {
        let mut verdicts: BTreeMap<Gdr, Vec<Pair>> = BTreeMap::new();
        for nic in &object.spec.nics {
            let Ok(address) = nic.at.parse::<PciAddress>() else { continue };
            for published in &nic.gpu_direct {
                let Ok(verdict) = published.verdict.parse::<Gdr>() else { continue };
                let numbers = published.gpus.iter().filter_map(|it| usize::try_from(*it).ok());
                let gpus: Vec<_> = numbers.filter_map(|number| self.gpus.get(number)).collect();
                let pairs = self.pairs.iter().copied();
                let pairs: Vec<Pair> =
                    pairs.filter(|pair| pair.nic == address && gpus.contains(&&pair.gpu)).collect();
                if !pairs.is_empty() {
                    verdicts.entry(verdict).or_default().extend(pairs);
                }
            }
        }
        verdicts
    }
}
