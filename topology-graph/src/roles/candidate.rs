//! A NIC whose role is to be decided, and the class that it belongs to.

use std::collections::BTreeSet;
use std::fmt;

use crate::graph::{Role, Vertex};
use crate::nic_role::{NicFacts, is_one_adapter};
use crate::vendor::{AMAZON, MELLANOX};
use crate::{LinkLayer, PathKind, PciAddress, PcieLink, Topology};

/// Device IDs of `BlueField` DPUs, 1 to 4 (`drivers/net/ethernet/mellanox/mlx5/core/main.c`).
const BLUEFIELD: [u16; 5] = [0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc, 0xa2df];
const BROADCOM: u16 = 0x14e4;

/// The rate of an adapter with one port, in megabits per second, by vendor and device ID. It counts
/// only while no port of the model has a link.
const NOMINAL_RATES: [((u16, u16), u32); 21] = [
    ((MELLANOX, 0x1013), 100_000),
    ((MELLANOX, 0x1015), 50_000),
    ((MELLANOX, 0x1017), 100_000),
    ((MELLANOX, 0x1019), 100_000),
    ((MELLANOX, 0x101b), 200_000),
    ((MELLANOX, 0x101d), 100_000),
    ((MELLANOX, 0x101f), 50_000),
    ((MELLANOX, 0x1021), 400_000),
    ((MELLANOX, 0x1023), 800_000),
    ((MELLANOX, 0x1025), 800_000),
    ((MELLANOX, 0xa2d2), 100_000),
    ((MELLANOX, 0xa2d6), 200_000),
    ((MELLANOX, 0xa2dc), 400_000),
    ((MELLANOX, 0xa2df), 800_000),
    ((BROADCOM, 0x1750), 200_000),
    ((BROADCOM, 0x1751), 200_000),
    ((BROADCOM, 0x1760), 400_000),
    ((AMAZON, 0xefa0), 100_000),
    ((AMAZON, 0xefa1), 100_000),
    ((AMAZON, 0xefa2), 200_000),
    ((AMAZON, 0xefa3), 400_000),
];

/// A physical function, or a virtual function whose physical function is elsewhere.
pub(super) struct Candidate<'t> {
    pub(super) address: PciAddress,
    vertex: &'t Vertex,
    pub(super) facts: NicFacts,
    pub(super) model: Model,
    /// The rate of its class, in megabits per second, if it is known.
    rate: Option<u32>,
    /// The GPUs that it reaches without passing a host bridge.
    pub(super) near: BTreeSet<PciAddress>,
}

/// NICs with the same hardware and link type, which have the same rate if all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Model {
    id: Option<(u16, u16)>,
    subsystem: Option<u16>,
    link_layer: Option<LinkLayer>,
    max_link: Option<PcieLink>,
    /// The number of physical functions of the adapter.
    functions: usize,
}

/// NICs that one claim may take together: one link type and one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) link_layer: Option<LinkLayer>,
    pub(super) rdma: bool,
    /// In megabits per second, if it is known.
    pub(super) rate: Option<u32>,
    /// True for the ports of a DPU.
    pub(super) is_dpu: bool,
}

/// The candidates of a machine, by address.
pub(super) fn candidates(topology: &Topology) -> Vec<Candidate<'_>> {
    let nics = topology
        .ends()
        .filter(|(_, vertex)| vertex.role == Role::Nic && vertex.physical_function.is_none());
    let nics: Vec<(PciAddress, &Vertex)> = nics.collect();
    let described = nics.iter().map(|(address, vertex)| {
        let facts = topology.nic_facts.get(address).cloned().unwrap_or_default();
        let model = Model {
            id: vertex.id,
            subsystem: facts.subsystem,
            link_layer: vertex.link_layer,
            max_link: vertex.max_link,
            functions: nics.iter().filter(|other| is_one_adapter(other.0, *address)).count(),
        };
        (*address, facts, model)
    });
    let mut described: Vec<_> = described.collect();
    complete_silent(&mut described);
    nics.iter()
        .zip(&described)
        .map(|((address, vertex), (_, facts, model))| Candidate {
            address: *address,
            vertex,
            facts: facts.clone(),
            model: *model,
            rate: rate(facts, *model, &described),
            near: gpus_near(topology, *address),
        })
        .collect()
}

/// The rate of a NIC; without a link, that of the others of its model.
fn rate(
    facts: &NicFacts,
    model: Model,
    described: &[(PciAddress, NicFacts, Model)],
) -> Option<u32> {
    let own = facts.rate_megabits;
    if facts.has_link() && own.is_some() {
        return own;
    }
    let equal = described.iter().filter(|(_, facts, other)| *other == model && facts.has_link());
    let equal = equal.filter_map(|(_, facts, _)| facts.rate_megabits).max();
    equal.or_else(|| model.nominal_rate()).or(own)
}

/// The GPUs that a NIC reaches without passing a host bridge.
fn gpus_near(topology: &Topology, nic: PciAddress) -> BTreeSet<PciAddress> {
    let gpus = topology.gpus().iter().map(|gpu| gpu.address);
    gpus.filter(|gpu| topology.path(*gpu, nic).satisfies(PathKind::Pxb)).collect()
}

/// A device that does not answer the kernel shows no ports. It has the link type of others like it.
fn complete_silent(described: &mut [(PciAddress, NicFacts, Model)]) {
    let known: Vec<Model> = described.iter().map(|(_, _, model)| *model).collect();
    let silent = described.iter_mut().filter(|(_, facts, _)| facts.is_silent());
    for (_, _, model) in silent.filter(|(_, _, model)| model.link_layer.is_none()) {
        let mut layers = known
            .iter()
            .filter(|other| Model { link_layer: None, ..**other } == *model)
            .filter_map(|other| other.link_layer);
        model.link_layer = layers.next();
    }
}

impl Candidate<'_> {
    pub(super) fn class(&self) -> Class {
        Class {
            link_layer: self.model.link_layer,
            rdma: self.has_rdma(),
            rate: self.rate,
            is_dpu: self.is_dpu(),
        }
    }

    pub(super) fn has_rdma(&self) -> bool {
        self.vertex.rdma
    }

    fn is_dpu(&self) -> bool {
        let id = self.vertex.id;
        id.is_some_and(|(vendor, device)| vendor == MELLANOX && BLUEFIELD.contains(&device))
    }

    /// The capacity of the fastest PCIe link that the function supports, if it is less than a
    /// quarter of the port's rate; both in gigabits per second.
    pub(super) fn narrow_link(&self) -> Option<(u32, u32)> {
        let link = self.vertex.max_link?.megabytes_per_second() / 125;
        let port = self.rate.max(self.model.chip_rate())? / 1_000;
        (link < port / 4).then_some((link, port))
    }
}

impl Model {
    /// The ports of an adapter share its rate.
    fn nominal_rate(self) -> Option<u32> {
        let ports = u32::try_from(self.functions).unwrap_or(u32::MAX).max(1);
        Some(self.chip_rate()? / ports)
    }

    fn chip_rate(self) -> Option<u32> {
        let known = NOMINAL_RATES.iter().find(|(id, _)| Some(*id) == self.id);
        known.map(|(_, rate)| *rate)
    }
}

/// `InfiniBand at 400 Gb/s`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dpu = if self.is_dpu { "BlueField, " } else { "" };
        let layer = match (self.link_layer, self.rdma) {
            (Some(LinkLayer::InfiniBand), _) => "InfiniBand",
            (Some(LinkLayer::Ethernet), _) => "Ethernet",
            (None, true) => "RDMA",
            (None, false) => "no RDMA",
        };
        match self.rate {
            None => write!(f, "{dpu}{layer}"),
            Some(rate) if rate % 1_000 == 0 => write!(f, "{dpu}{layer} at {} Gb/s", rate / 1_000),
            Some(rate) => write!(f, "{dpu}{layer} at {}.{} Gb/s", rate / 1_000, rate % 1_000 / 100),
        }
    }
}
