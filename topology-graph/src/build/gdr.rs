//! Decides for each GPU and NIC whether GPUDirect RDMA works, from facts on the path between them.

use std::collections::BTreeMap;

use super::devices;
use crate::chip_to_chip::ChipToChip;
use crate::gdr::Gdr;
use crate::graph::{Edge, Graph, Place, Role, Vertex};
use crate::snapshot::{AcsControl, IommuMode, PciFunction};
use crate::{PathKind, PciAddress, Snapshot};

/// Verdicts by GPU and NIC; a missing entry is unknown.
pub(crate) type Verdicts = BTreeMap<(PciAddress, PciAddress), Gdr>;

pub(crate) fn verdicts(snapshot: &Snapshot, graph: &Graph) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for (gpu, _) in graph.endpoints_of(Role::Gpu) {
        for (nic, _) in graph.endpoints_of(Role::Nic) {
            let verdict = Way::between(gpu, nic, snapshot, graph).map(|way| way.verdict());
            if let Some(verdict) = verdict.filter(|verdict| *verdict != Gdr::Unknown) {
                verdicts.insert((gpu, nic), verdict);
            }
        }
    }
    verdicts
}

/// The facts on the path from a GPU to a NIC.
struct Way<'s> {
    kind: PathKind,
    gpu: &'s PciFunction,
    /// The NIC, or the function that moves its data.
    nic: &'s PciFunction,
    /// The ports below the common ancestor.
    ports: Vec<&'s PciFunction>,
    peer_memory: Option<bool>,
    /// True if a hypervisor hides switches, and with them their ACS settings.
    hidden: bool,
    /// True if a link on the path runs below the capability of its ends.
    degraded: bool,
    /// True if the path ends with a link between CPU and GPU in one package, and the GPU has memory.
    is_chip_to_chip: bool,
}

impl<'s> Way<'s> {
    fn between(
        gpu: PciAddress,
        nic: PciAddress,
        snapshot: &'s Snapshot,
        graph: &Graph,
    ) -> Option<Self> {
        let way = graph.between(gpu, nic).map(|(kind, _, steps)| (kind, steps));
        let (kind, steps) = way.unwrap_or((PathKind::Unknown, Vec::new()));
        let vertices: Vec<&Vertex> = steps.iter().map(|step| step.to).collect();
        let mover = vertices.iter().find(|vertex| vertex.role == Role::DataPath);
        let nic = mover.map_or(Some(nic), |mover| mover.place.address())?;
        let nic = snapshot.function(nic)?;
        let gpu_function = snapshot.function(gpu)?;
        let ports = below(&vertices, gpu, graph).into_iter();
        let ports: Vec<&PciFunction> =
            ports.filter_map(|port| snapshot.function(port.place.address()?)).collect();
        Some(Self {
            kind,
            gpu: gpu_function,
            nic,
            degraded: is_degraded(gpu_function, nic, &ports, snapshot),
            is_chip_to_chip: steps.iter().any(|step| matches!(step.edge, Edge::ChipToChip { .. }))
                && ChipToChip::new((gpu_function.vendor, gpu_function.device))
                    .is_some_and(|chip| chip.has_memory),
            ports,
            peer_memory: peer_memory(gpu_function, snapshot),
            hidden: vertices.iter().any(|vertex| vertex.role == Role::Switch),
        })
    }

    fn verdict(&self) -> Gdr {
        if self.peer_memory == Some(false) {
            return Gdr::NoPeerMemory;
        }
        let routing = match self.kind {
            // The memory of such a GPU is a NUMA node of the machine, which NICs reach as they reach
            // that of CPUs, also through an IOMMU.
            PathKind::Phb | PathKind::Node | PathKind::Sys if self.is_chip_to_chip => Gdr::Ok,
            PathKind::Pix | PathKind::Pxb => self.through_switches(),
            PathKind::Phb | PathKind::Node => self.through_root(),
            _ => Gdr::Unknown,
        };
        match routing {
            Gdr::Ok if self.peer_memory.is_none() => Gdr::Unknown,
            Gdr::Ok if self.degraded => Gdr::DegradedLink,
            verdict => verdict,
        }
    }

    fn through_switches(&self) -> Gdr {
        if self.hidden {
            return Gdr::Unknown;
        }
        let controls: Option<Vec<AcsControl>> = self.ports.iter().map(|port| port.acs).collect();
        match controls {
            Some(controls) => self.by_control(&controls),
            // The ports do not show ACS. A common IOMMU group proves that nothing isolates the two.
            None => match (self.gpu.iommu_group, self.nic.iommu_group) {
                (Some(gpu), Some(nic)) if gpu == nic => Gdr::Ok,
                (Some(_), Some(_)) => Gdr::AcsRedirect,
                _ => Gdr::Unknown,
            },
        }
    }

    fn by_control(&self, controls: &[AcsControl]) -> Gdr {
        let mut redirecting = controls.iter().filter(|control| control.redirects()).peekable();
        if redirecting.peek().is_none() {
            return Gdr::Ok;
        }
        if !redirecting.all(|control| control.direct_translated()) {
            return Gdr::AcsRedirect;
        }
        match self.nic.ats_enabled {
            Some(true) => Gdr::Ok,
            Some(false) => Gdr::AtsMissing,
            None => Gdr::Unknown,
        }
    }

    /// No source says whether a root complex forwards between its ports.
    fn through_root(&self) -> Gdr {
        match [self.gpu.iommu_mode, self.nic.iommu_mode] {
            [Some(IommuMode::Translated), _] | [_, Some(IommuMode::Translated)] => Gdr::Iommu,
            _ => Gdr::Unknown,
        }
    }
}

/// Returns true if a link on the path runs below the capability of its ends. Each link is judged at
/// its lower end; the link that a root or downstream port shows is the one of the device below it.
fn is_degraded(
    gpu: &PciFunction,
    nic: &PciFunction,
    ports: &[&PciFunction],
    snapshot: &Snapshot,
) -> bool {
    let ports = ports.iter().copied().filter(|port| !port.bridges.len().is_multiple_of(2));
    let mut lower_ends = [gpu, nic].into_iter().chain(ports);
    lower_ends.any(|function| devices::degraded(function, snapshot).is_some())
}

/// The ports on a path, without the port at which it turns: the last one above the GPU.
fn below<'g>(way: &[&'g Vertex], gpu: PciAddress, graph: &Graph) -> Vec<&'g Vertex> {
    let above: Vec<Place> =
        graph.chain(Place::Function(gpu)).iter().map(|vertex| vertex.place).collect();
    let turn = way.iter().rposition(|vertex| above.contains(&vertex.place));
    let ports =
        way.iter().enumerate().filter(|(at, vertex)| vertex.role.is_port() && Some(*at) != turn);
    // Only one device is below the ports inside of a GPU or a NIC, so they isolate nothing.
    let ports = ports.filter(|(_, vertex)| !graph.is_inside_device(vertex.place));
    ports.map(|(_, vertex)| *vertex).collect()
}

/// NVIDIA needs a separate module or the open driver's dma-buf; AMD always has dma-buf.
fn peer_memory(gpu: &PciFunction, snapshot: &Snapshot) -> Option<bool> {
    match gpu.driver.as_deref()? {
        "nvidia" => snapshot.nvidia_peer_memory,
        "amdgpu" => Some(true),
        _ => None,
    }
}
