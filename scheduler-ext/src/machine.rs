//! The GPUs and NICs of a node, and the hierarchy of cells that contain them.

use cluster_model::node_devices::{NodeDevice, Role, partitions};
use cluster_model::published_device::{PublishedDevice as _, Trouble};
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, DeviceId};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use topology_graph::{Level, NicRole, PciAddress, Topology};

use crate::lock::lock;
use crate::score::{Free, FreeCells, Reach};

/// The cells of a topology, which all nodes of a shape share. Without a topology there
/// are none.
#[derive(Debug, Default)]
pub struct Cells {
    topology: Option<Arc<Topology>>,
    /// Index of each device's cell, by level.
    places: HashMap<PciAddress, [Option<usize>; LEVELS]>,
    /// Number of cells per level.
    counts: [usize; LEVELS],
    /// The farthest pairs that were looked for: nodes of a shape are asked about the same
    /// devices again and again.
    farthest: Mutex<HashMap<Addresses, Option<Reach>, RandomState>>,
}

/// GPUs and NICs.
type Addresses = (Box<[PciAddress]>, Box<[PciAddress]>);

/// The most cached sets of devices per shape, some hundred bytes each.
const FARTHEST_MAX: usize = 4096;

const LEVELS: usize = Level::WITH_WORDS.len();

/// The published GPUs and NICs of one node.
#[derive(Clone, Debug)]
pub struct NodeMachine {
    cells: Arc<Cells>,
    parts: Vec<Part>,
    /// Free devices with nothing in use.
    whole: FreeCells,
}

/// One GPU or NIC.
#[derive(Clone, Debug)]
struct Part {
    id: DeviceId,
    address: Option<PciAddress>,
    /// The function that has its port.
    port: Option<PciAddress>,
    kind: Kind,
    /// Its cells by level; `None` if the topology does not know.
    cells: [Option<usize>; LEVELS],
    /// Whether a new pod could get it if it were free.
    is_usable: bool,
    /// Whether its port is down, or its PCIe link runs below its capability.
    is_degraded: bool,
    /// The partitions of a GPU, which is not free while one of them is in use.
    partitions: Box<[DeviceId]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gpu,
    /// A compute NIC with RDMA, which GPUs are paired with.
    Nic,
    /// A NIC for storage or management.
    OtherNic,
}

impl Cells {
    /// Computes the cells of a topology.
    pub fn new(topology: Arc<Topology>) -> Self {
        let mut places: HashMap<PciAddress, [Option<usize>; LEVELS]> = HashMap::new();
        let mut counts = [0; LEVELS];
        for (level, count) in Level::WITH_WORDS.into_iter().zip(0..) {
            let cells = topology.cells_of_all(level);
            counts[count] = cells.len();
            for (number, cell) in cells.iter().enumerate() {
                for address in cell.gpus.iter().chain(&cell.nics) {
                    places.entry(*address).or_default()[count] = Some(number);
                }
            }
        }
        Self { topology: Some(topology), places, counts, farthest: Mutex::default() }
    }

    /// The farthest of the pairs of these devices; unknown without a topology.
    fn farthest(&self, gpus: Vec<PciAddress>, nics: Vec<PciAddress>) -> Option<Reach> {
        let Some(topology) = &self.topology else { return Some(Reach::UNKNOWN) };
        let devices = (gpus.into(), nics.into());
        if let Some(known) = lock(&self.farthest).get(&devices) {
            return *known;
        }
        let pairs = topology.pairs_of(&devices.0, &devices.1);
        let farthest = pairs.iter().map(|pair| Reach::new(topology, pair)).max();
        let mut cached = lock(&self.farthest);
        if cached.len() >= FARTHEST_MAX {
            cached.clear();
        }
        cached.insert(devices, farthest);
        farthest
    }
}

impl NodeMachine {
    /// Places the devices of a node in the cells of its topology.
    pub fn of(view: &ClusterView, node: &str, cells: Arc<Cells>) -> Self {
        let devices: Vec<NodeDevice<'_>> = NodeDevice::all(view, node).collect();
        let partitions = partitions(&devices);
        let has_rdma = devices.iter().any(|it| is_compute(it) && it.device.has_rdma());
        let parts = devices.iter().filter(|it| it.role != Role::Part).map(|it| {
            let trouble = it.device.trouble();
            Part {
                id: it.device.id().clone(),
                address: it.address,
                port: it.port(),
                kind: if it.role == Role::Gpu {
                    Kind::Gpu
                } else if is_compute(it) && (it.device.has_rdma() || !has_rdma) {
                    Kind::Nic
                } else {
                    Kind::OtherNic
                },
                cells: it
                    .address
                    .and_then(|address| cells.places.get(&address).copied())
                    .unwrap_or_default(),
                is_usable: trouble.is_none(),
                is_degraded: trouble.as_ref().is_some_and(Trouble::is_of_link),
                partitions: it
                    .address
                    .filter(|_| it.role == Role::Gpu)
                    .and_then(|address| partitions.get(&address))
                    .map(|all| all.as_slice().into())
                    .unwrap_or_default(),
            }
        });
        let parts = parts.collect();
        let mut machine = Self { cells, parts, whole: FreeCells::default() };
        machine.whole = machine.room_of(machine.parts.iter().filter(|part| part.is_usable));
        machine
    }

    /// Free devices at each level, given what is in use. A NIC that pods share does not
    /// count as free.
    pub fn room(&self, in_use: &AllocatedState) -> FreeCells {
        self.room_of(self.free(in_use))
    }

    /// The same, and what is left of it without these devices.
    pub fn rooms(&self, in_use: &AllocatedState, taken: &[DeviceId]) -> [FreeCells; 2] {
        let free: Vec<&Part> = self.free(in_use).collect();
        let left = free.iter().filter(|part| !part.is_among(taken));
        let left = self.room_of(left.copied());
        [self.room_of(free.into_iter()), left]
    }

    fn free(&self, in_use: &AllocatedState) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| {
            part.is_usable
                && !in_use.is_taken(&part.id)
                && !part.partitions.iter().any(|partition| in_use.is_taken(partition))
        })
    }

    fn room_of<'p>(&self, free: impl Iterator<Item = &'p Part>) -> FreeCells {
        let mut levels: Vec<Vec<Free>> =
            self.cells.counts.iter().map(|count| vec![Free::default(); *count]).collect();
        let mut node = Free::default();
        let mut ports: Vec<PciAddress> = Vec::new();
        for part in free {
            // All functions of a port are in one cell.
            let is_new = part.port.is_none_or(|port| !ports.contains(&port));
            ports.extend(part.port.filter(|_| is_new && part.kind == Kind::Nic));
            part.kind.count(&mut node, is_new);
            for (cells, number) in levels.iter_mut().zip(part.cells) {
                if let Some(cell) = number.and_then(|number| cells.get_mut(number)) {
                    part.kind.count(cell, is_new);
                }
            }
        }
        levels.push(vec![node]);
        FreeCells::new(levels)
    }

    /// Its GPUs and NICs.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.parts.iter().map(|part| &part.id)
    }

    /// Whether this is the machine's room with nothing in use.
    pub fn is_whole(&self, room: &FreeCells) -> bool {
        !self.parts.is_empty() && room.node() == self.whole.node()
    }

    /// What would be free with nothing in use.
    pub fn whole(&self) -> &FreeCells {
        &self.whole
    }

    /// The farthest of the pairs of these devices; `None` without a GPU or without an RDMA
    /// NIC. The pairs are those that containers are told: the best assignment overall.
    pub fn farthest(&self, devices: &[DeviceId]) -> Option<Reach> {
        let taken: Vec<&Part> = self.parts.iter().filter(|part| part.is_among(devices)).collect();
        if [Kind::Gpu, Kind::Nic].iter().any(|kind| taken.iter().all(|part| part.kind != *kind)) {
            return None;
        }
        match [Kind::Gpu, Kind::Nic].map(|kind| addresses(&taken, kind)) {
            [Some(gpus), Some(nics)] => self.cells.farthest(gpus, nics),
            _ => Some(Reach::UNKNOWN),
        }
    }

    /// How many of these devices are GPUs that are in use already: claims can share them.
    pub fn shared_gpus(&self, in_use: &AllocatedState, devices: &[DeviceId]) -> u32 {
        let gpus = self.parts.iter().filter(|part| part.kind == Kind::Gpu);
        let taken = gpus.filter(|part| part.is_among(devices) && in_use.is_taken(&part.id));
        u32::try_from(taken.count()).unwrap_or(u32::MAX)
    }

    /// How many of these devices are degraded NICs.
    pub fn degraded(&self, devices: &[DeviceId]) -> u32 {
        let degraded = self.parts.iter().filter(|part| part.is_degraded);
        let taken = degraded.filter(|part| part.is_among(devices)).count();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }
}

impl Part {
    /// Compares names first: devices of a node mostly differ in their names.
    fn is_among(&self, devices: &[DeviceId]) -> bool {
        devices.iter().any(|device| device.device == self.id.device && *device == self.id)
    }
}

impl Kind {
    /// Counts a device; `is_new` if none of its port was counted before.
    fn count(self, free: &mut Free, is_new: bool) {
        match self {
            Self::Gpu => free.gpus += 1,
            Self::Nic => {
                free.nics += 1;
                free.ports += u32::from(is_new);
            }
            Self::OtherNic => {}
        }
    }
}

/// The addresses of the parts of a kind; `None` if one is unknown.
fn addresses(parts: &[&Part], kind: Kind) -> Option<Vec<PciAddress>> {
    parts.iter().filter(|part| part.kind == kind).map(|part| part.address).collect()
}

/// Whether GPUs are paired with this NIC, if it has RDMA.
fn is_compute(it: &NodeDevice<'_>) -> bool {
    it.role.is_nic() && it.nic_role() == NicRole::Compute
}
