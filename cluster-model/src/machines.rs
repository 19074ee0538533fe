//! The distinct machines of a cluster. Nodes that no plan can distinguish are one machine, so that
//! a decision examines a few machines instead of thousands of nodes.
//!
//! Two nodes are alike if their graphs have the same layout and their devices agree in everything
//! that one of our claims may mention. Identities of single devices (UUIDs, MAC addresses) matter
//! only for which devices they tie together. Shapes are identities too: a claim lists all shapes of
//! a machine.

mod selection;

use crate::gpu_drivers::{self, GpuDriver};
use crate::layout::Layout;
use crate::names::{attribute, capacity, cpu, nvme};
use crate::nic_drivers;
use crate::node_devices::{NodeDevices, capacity_of, text};
use crate::remembered;
use crate::view::ClusterView;
use dra_allocator::{AttributeValue, Class, Device, QualifiedName, Quantity};
use selection::{OtherNics, selected, type_label};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;
use topology_graph::{Cell, Level, Pair, PciAddress, ShapeHash, Topology};

pub(crate) use selection::keep_nics;
pub use selection::{NicSelection, NotSelected, Selection, is_in, type_name};

/// What a claim may draw from on a node.
pub(crate) struct Found<'a> {
    pub(crate) devices: NodeDevices<'a>,
    pub(crate) other_nics: OtherNics<'a>,
    /// CPUs and NVMe devices.
    pub(crate) beside: [Vec<NumaAmount>; 2],
}

/// The number of CPUs or NVMe devices on a NUMA node that claims can use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaAmount {
    /// The NUMA node, as published by NICs.
    pub numa: AttributeValue,
    /// The number that all claims together can use.
    pub amount: i64,
}

/// One or more nodes that are alike, with their selectable devices.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// The nodes; the first represents all of them.
    pub nodes: Vec<&'a str>,
    /// The devices of the first node.
    pub devices: NodeDevices<'a>,
    /// The shapes of the nodes' graphs. Graphs of several shapes can have the same layout.
    pub shapes: BTreeSet<ShapeHash>,
    /// What claims can read of these graphs.
    pub layout: Arc<Layout>,
    /// The CPUs by NUMA node, if the selection asks for them.
    pub cpus: Vec<NumaAmount>,
    /// The NVMe devices by NUMA node, if the selection asks for them.
    pub nvmes: Vec<NumaAmount>,
    /// The NICs that the selection's class and driver cannot tell from the selected ones, but that the
    /// graph has another role for. They are none of `devices`.
    pub other_nics: OtherNics<'a>,
    /// The name that people have for the type of the first node.
    pub type_name: Option<String>,
    /// The label of the nodes that names the type of their machine, if NICs do not publish the shape.
    pub type_label: Option<(&'static str, String)>,
    /// Whether constraints match lists by common elements (feature `DRAListTypeAttributes`). Otherwise
    /// they match no list.
    match_lists: bool,
}

/// Everything that a plan can see of a machine.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    /// The index of the layout.
    layout: usize,
    devices: Vec<DeviceLikeness>,
    /// CPUs and NVMe devices.
    beside: [Vec<NumaAmount>; 2],
    other_nics: Vec<PciAddress>,
    type_label: Option<(&'static str, String)>,
}

/// What a plan can see of a device.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeviceLikeness {
    address: PciAddress,
    has_shape: bool,
    values: Vec<Option<AttributeValue>>,
    partner: Option<PciAddress>,
    on_fabric: bool,
    /// The capacity that claims share, of NICs if the selection asks for shares, and of GPUs if claims
    /// can share any of this driver: each value, and what a claim takes by default and at most and
    /// least of it.
    shared: Vec<(QualifiedName, Vec<Quantity>)>,
}

/// Which devices differ by the capacity that claims share.
#[derive(Clone, Copy)]
struct Shared {
    nics: bool,
    gpus: bool,
}

/// Returns the machines with at least one selected NIC, and GPU if the selection has any, among the
/// nodes that pass the filter; those with most present nodes first. Remembered machines yield to
/// present ones: they are left out if a present machine is the same, or the same without lost
/// devices.
pub fn machines<'a>(
    view: &'a ClusterView,
    selection: &Selection<'_>,
    filter: impl Fn(&str) -> bool,
) -> Vec<Machine<'a>> {
    alike(view, (selection.gpu_driver, selection.nics.only_shared), filter, |name| {
        let (devices, other_nics) = selected(view, name, selection)?;
        let cpus = selection.cpu_class.map_or_else(Vec::new, |class| cpus(view, name, class));
        let nvmes = selection.nvme_class.map_or_else(Vec::new, |class| nvmes(view, name, class));
        Some(Found { devices, other_nics, beside: [cpus, nvmes] })
    })
}

/// Groups the nodes that pass the filter and for which `found` returns devices. `only_shared` says
/// whether machines also differ by the capacity of their NICs.
pub(crate) fn alike<'a>(
    view: &'a ClusterView,
    (driver, only_shared): (&GpuDriver, bool),
    filter: impl Fn(&str) -> bool,
    found: impl Fn(&'a str) -> Option<Found<'a>>,
) -> Vec<Machine<'a>> {
    let mut alike: BTreeMap<Likeness, Machine<'a>> = BTreeMap::new();
    let mut layouts = Layouts::default();
    let shared = Shared { nics: only_shared, gpus: are_shared(view, driver) };
    // Remembered machines last: if a real node is alike, the remembered one is not listed.
    let nodes = view.inventory().node_names().filter(|name| filter(name));
    let (remembered, present): (Vec<_>, Vec<_>) = nodes.partition(|name| view.is_remembered(name));
    for name in present.into_iter().chain(remembered) {
        let Some(Found { devices, other_nics, beside }) = found(name) else { continue };
        let type_label = type_label(view, name, &devices);
        let [cpus, nvmes] = beside.clone();
        let (index, layout) = layouts.of(devices.topology);
        let shape = devices.topology.shape();
        let mut likeness = likeness(index, &devices, (driver, shared), beside);
        likeness.other_nics = other_nics.keys().copied().collect();
        likeness.type_label.clone_from(&type_label);
        let machine = alike.entry(likeness).or_insert_with(|| {
            let (nodes, shapes) = (Vec::new(), BTreeSet::new());
            let type_name = type_name(view, name);
            Machine {
                nodes,
                devices,
                shapes,
                layout,
                cpus,
                nvmes,
                other_nics,
                type_name,
                type_label,
                match_lists: view.settings().gates.list_type_attributes,
            }
        });
        machine.shapes.insert(shape);
        if machine.nodes.is_empty() || !view.is_remembered(name) {
            machine.nodes.push(name);
        }
    }
    let mut machines: Vec<_> = alike.into_values().collect();
    machines.sort_by_key(|machine| (Reverse(machine.weight()), machine.devices_missing()));
    yielding(machines)
}

/// The layouts of graphs, each stored once.
#[derive(Default)]
struct Layouts {
    shapes: BTreeMap<ShapeHash, (usize, Arc<Layout>)>,
    all: BTreeMap<Arc<Layout>, usize>,
}

impl Layouts {
    /// The layout of a graph, and its index.
    fn of(&mut self, topology: &Topology) -> (usize, Arc<Layout>) {
        if let Some(known) = self.shapes.get(&topology.shape()) {
            return known.clone();
        }
        let layout = Arc::new(Layout::new(topology));
        let next = self.all.len();
        let known = self.all.get_key_value(&layout).map(|(layout, index)| (*index, layout.clone()));
        let found = known.unwrap_or_else(|| {
            self.all.insert(layout.clone(), next);
            (next, layout)
        });
        self.shapes.insert(topology.shape(), found.clone());
        found
    }
}

/// The machines without remembered ones that another machine stands for.
fn yielding(machines: Vec<Machine<'_>>) -> Vec<Machine<'_>> {
    let mut kept: Vec<Machine<'_>> = Vec::new();
    for machine in machines {
        let is_condition = kept.iter().any(|other: &Machine<'_>| {
            let (has, own) = (&other.devices, &machine.devices);
            own.gpus.keys().all(|gpu| has.gpus.contains_key(gpu))
                && own.nics.keys().all(|nic| has.nics.contains_key(nic))
                && machine.layout.is_condition_of(&other.layout)
        });
        if machine.live_nodes() > 0 || !is_condition {
            kept.push(machine);
        }
    }
    kept
}

/// The shareable CPUs of a node, by NUMA node.
fn cpus(view: &ClusterView, node: &str, class: &Class) -> Vec<NumaAmount> {
    let devices = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    let shared = devices.into_iter().filter(|device| {
        *device.id().driver == *cpu::DRIVER
            && device.allows_multiple_allocations()
            && is_in(class, device, view.settings())
    });
    shared
        .filter_map(|device| {
            let numa = numa(device)?.clone();
            Some(NumaAmount { numa, amount: capacity_of(device, capacity::CPU)?.value.value() })
        })
        .collect()
}

/// The number of NVMe devices of a node, by NUMA node.
fn nvmes(view: &ClusterView, node: &str, class: &Class) -> Vec<NumaAmount> {
    let devices = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    let mut amounts: BTreeMap<&AttributeValue, i64> = BTreeMap::new();
    for device in devices {
        if *device.id().driver == *nvme::DRIVER
            && is_in(class, device, view.settings())
            && let Some(numa) = numa(device)
        {
            *amounts.entry(numa).or_default() += 1;
        }
    }
    amounts.into_iter().map(|(numa, amount)| NumaAmount { numa: numa.clone(), amount }).collect()
}

/// The NUMA node of a device, if it is a single value.
fn numa(device: &Device) -> Option<&AttributeValue> {
    device.attribute(attribute::NUMA_NODE).filter(|value| !value.is_list())
}

fn likeness(
    layout: usize,
    devices: &NodeDevices<'_>,
    (driver, shared): (&GpuDriver, Shared),
    beside: [Vec<NumaAmount>; 2],
) -> Likeness {
    let gpus = devices.gpus.iter().map(|gpu| (gpu, shared.gpus));
    let all = gpus.chain(devices.nics.iter().map(|nic| (nic, shared.nics)));
    let mentioned = [
        attribute::PCI_BUS_ID,
        attribute::PCIE_ROOT,
        attribute::NUMA_NODE,
        attribute::PCIE_SWITCH,
        attribute::RAIL,
        attribute::PORT,
        attribute::ROLE,
    ];
    let own = driver.numa_attribute.into_iter().chain(driver.kind_attribute);
    let own = own.chain(addresses(driver));
    let mentioned: Vec<_> = mentioned.into_iter().chain(own).collect();
    let gpus = devices.gpus.iter().map(|(address, gpu)| (uuid(gpu, driver), *address));
    let gpus: Vec<_> = gpus.collect();
    let devices = all.map(|((address, device), is_shared)| {
        let has_shape = device.attribute(attribute::SHAPE).is_some();
        // For NICs whose machine cannot be identified otherwise.
        let is_nic = devices.nics.contains_key(address);
        let types = attribute::MACHINE_TYPES.iter().filter(|_| is_nic && !has_shape);
        let address_name = address_of_nic(device);
        let names = mentioned.iter().chain(types).chain(&address_name);
        DeviceLikeness {
            address: *address,
            has_shape,
            values: names.map(|name| device.attribute(name).cloned()).collect(),
            partner: partner(&gpus, uuid(device, driver)),
            on_fabric: text(device, attribute::AZURE_PLACEMENT_GROUP).is_some(),
            shared: if is_shared { amounts(device) } else { Vec::new() },
        }
    });
    let devices = devices.collect();
    Likeness { layout, devices, beside, other_nics: Vec::new(), type_label: None }
}

/// The attributes of the driver's own by which claims list GPUs, and of its whole GPUs.
fn addresses(driver: &GpuDriver) -> impl Iterator<Item = &'static str> {
    let whole = gpu_drivers::by_name(driver.driver).and_then(|whole| whole.address_attribute);
    driver.address_attribute.into_iter().chain(whole)
}

/// The attribute of its driver's own by which claims list a NIC.
fn address_of_nic(device: &Device) -> Option<&'static str> {
    nic_drivers::by_name(&device.id().driver).and_then(|driver| driver.address_attribute)
}

/// The capacities of a device.
fn amounts(device: &Device) -> Vec<(QualifiedName, Vec<Quantity>)> {
    let is_shared = device.allows_multiple_allocations();
    let amounts = device.capacity().iter().map(|(name, capacity)| {
        let taken = is_shared.then(|| [capacity.by_default(), capacity.most()]);
        let least = capacity.least().filter(|_| is_shared);
        let all = iter::once(capacity.value).chain(taken.into_iter().flatten()).chain(least);
        (name.clone(), all.collect())
    });
    amounts.collect()
}

/// Returns true if claims can share any device of the driver.
fn are_shared(view: &ClusterView, driver: &GpuDriver) -> bool {
    let mut slices = view.inventory().slices().filter(|it| *it.pool.driver == *driver.driver);
    view.settings().gates.consumable_capacity
        && slices.any(|slice| slice.devices.iter().any(Device::allows_multiple_allocations))
}

fn uuid<'a>(device: &'a Device, driver: &GpuDriver) -> Option<&'a str> {
    text(device, driver.uuid_attribute?)
}

fn add_once(addresses: &mut Vec<PciAddress>, address: PciAddress) {
    if !addresses.contains(&address) {
        addresses.push(address);
    }
}

/// The first GPU with this UUID.
fn partner(gpus: &[(Option<&str>, PciAddress)], uuid: Option<&str>) -> Option<PciAddress> {
    let mut same = gpus.iter().filter(|(own, _)| own.is_some() && *own == uuid);
    same.next().map(|(_, address)| *address)
}

impl Machine<'_> {
    /// The number of real nodes; 0 for a machine that is only remembered.
    pub fn live_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| !remembered::is_name(node)).count()
    }

    /// How much the machine counts: by its present nodes, or else as a remembered one.
    pub fn weight(&self) -> (usize, usize) {
        (self.live_nodes(), self.nodes.len())
    }

    /// Sorts machines with more devices first.
    fn devices_missing(&self) -> Reverse<usize> {
        Reverse(self.devices.gpus.len() + self.devices.nics.len())
    }

    /// The number of ports of the selected NICs. All functions of a port share its link.
    pub fn ports(&self) -> usize {
        let ports = self.devices.nics.keys().map(|nic| self.devices.topology.port_of(*nic));
        ports.collect::<BTreeSet<_>>().len()
    }

    /// The cells of a level, reduced to selected devices. Only cells with both GPUs and NICs are
    /// included.
    pub fn cells(&self, level: Level) -> Vec<Cell> {
        mixed(self.devices.cells(level))
    }

    /// Each GPU with the NICs that are its own ([`Topology::partners`]). GPUs that share a NIC are
    /// together; a GPU without a NIC of its own is in none.
    pub fn partners(&self) -> Vec<Cell> {
        let topology = self.devices.topology;
        paired(
            topology,
            topology.partners().into_iter().filter(|pair| {
                self.devices.gpus.contains_key(&pair.gpu)
                    && self.devices.nics.contains_key(&pair.nic)
            }),
        )
    }

    /// The same, with devices that are not published now.
    pub fn all_partners(&self) -> Vec<Cell> {
        let topology = self.devices.topology;
        paired(topology, topology.partners().into_iter())
    }

    /// Returns true if the NICs that each GPU is paired with are strictly nearer to it than its
    /// other NICs.
    pub fn has_nearer_partners(&self) -> bool {
        let topology = &self.devices.topology;
        let pairs = self.partners();
        !pairs.is_empty()
            && pairs.iter().all(|cell| {
                let path =
                    |nic: &PciAddress| cell.gpus.iter().map(|gpu| topology.path(*gpu, *nic)).max();
                let farthest = cell.nics.iter().filter_map(path).max();
                let others = self.devices.nics.keys().filter(|nic| !cell.nics.contains(nic));
                others.filter_map(path).min().is_none_or(|nearest| farthest < Some(nearest))
            })
    }

    /// The cells that a constraint on an attribute creates: devices with the same value, or with an
    /// element of a list in common. Only cells with both GPUs and NICs are included.
    pub fn cells_by_attribute(&self, attribute: &str) -> Vec<Cell> {
        let mut cells: BTreeMap<AttributeValue, Cell> = BTreeMap::new();
        let topology = self.devices.topology;
        let all = self.devices.gpus.iter().chain(&self.devices.nics);
        for (address, device) in all {
            let value = device.attribute(attribute);
            let value = value.filter(|value| self.match_lists || !value.is_list());
            for value in value.map(AttributeValue::elements).unwrap_or_default() {
                let key = value.to_string();
                let cell = cells.entry(value).or_insert_with(|| Cell {
                    key,
                    gpus: Vec::new(),
                    nics: Vec::new(),
                    physical: BTreeMap::new(),
                });
                let physical = topology.physical_function(*address);
                cell.physical.extend(physical.map(|physical| (*address, physical)));
                let is_gpu = self.devices.gpus.contains_key(address);
                let list = if is_gpu { &mut cell.gpus } else { &mut cell.nics };
                list.push(*address);
            }
        }
        mixed(cells.into_values().collect())
    }

    /// Returns true if every selected NIC has the attribute.
    pub fn nics_have(&self, attribute: &str) -> bool {
        self.devices.nics.values().all(|nic| nic.attribute(attribute).is_some())
    }
}

/// Paired devices; GPUs that share a NIC are together.
fn paired(topology: &Topology, pairs: impl Iterator<Item = Pair>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for Pair { gpu, nic, .. } in pairs {
        let physical = topology.physical_function(nic).map(|physical| (nic, physical));
        let known =
            cells.iter_mut().find(|cell| cell.gpus.contains(&gpu) || cell.nics.contains(&nic));
        match known {
            Some(cell) => {
                add_once(&mut cell.gpus, gpu);
                add_once(&mut cell.nics, nic);
                cell.physical.extend(physical);
            }
            None => cells.push(Cell {
                key: gpu.to_string(),
                gpus: vec![gpu],
                nics: vec![nic],
                physical: physical.into_iter().collect(),
            }),
        }
    }
    cells
}

fn mixed(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.retain(|cell| !cell.gpus.is_empty() && !cell.nics.is_empty());
    cells
}
