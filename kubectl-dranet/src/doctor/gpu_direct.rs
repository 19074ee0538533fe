//! Pairs of a GPU and its NIC that cannot use GPUDirect RDMA, from what node-driver reads about
//! ports, IOMMU and the GPU's driver.

use crate::answer::DoctorFinding;
use crate::text::counted;
use cluster_model::view::ClusterView;
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

pub(super) fn examine(view: &ClusterView) -> Vec<DoctorFinding> {
    let mut shapes: HashMap<ShapeHash, Paired> = HashMap::new();
    let mut found: BTreeMap<Gdr, Stopped<'_>> = BTreeMap::new();
    for (node, object) in view.node_topologies().filter(|(name, _)| !view.is_remembered(name)) {
        let Some(graph) = view.topology(node) else { continue };
        let paired = shapes.entry(graph.shape()).or_insert_with(|| Paired::new(graph));
        for (verdict, pairs) in paired.verdicts(object) {
            let stopped = found.entry(verdict).or_default();
            if stopped.nodes.is_empty() {
                stopped.pairs = pairs;
            }
            stopped.nodes.insert(node);
        }
    }
    found.into_iter().filter_map(|(verdict, stopped)| {
        let (why, what_to_do) = remedy(verdict)?;
        let first = stopped.pairs.first()?;
        let message = format!(
            "GPUs that their NICs cannot reach directly (GPUDirect RDMA, {verdict}): {why}; {} on \
             the first node, such as GPU {} with NIC {}; {what_to_do}",
            counted(stopped.pairs.len(), "pair"),
            first.gpu,
            first.nic,
        );
        DoctorFinding::on(&stopped.nodes, ("has", "have"), &message)
    }).collect()
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
                let number = |gpu: &PciAddress| self.gpus.iter().position(|it| it == gpu);
                let pairs: Vec<Pair> = self
                    .pairs
                    .iter()
                    .filter(|pair| {
                        pair.nic == address
                            && number(&pair.gpu).is_some_and(|number| {
                                published.gpus.iter().any(|it| usize::try_from(*it) == Ok(number))
                            })
                    })
                    .copied()
                    .collect();
                if !pairs.is_empty() {
                    verdicts.entry(verdict).or_default().extend(pairs);
                }
            }
        }
        verdicts
    }
}
