//! The devices of each node, and how many are free.

use crate::answer::{Amount, LowerHolder};
use crate::device_names;
use cluster_model::closed::Closed;
use cluster_model::device_state::DeviceState;
use cluster_model::gpu_drivers;
use cluster_model::machines;
use cluster_model::names::{self, label};
use cluster_model::node_devices::{NodeDevice, NodeDevices};
use cluster_model::plugin_machines::places;
use cluster_model::published_device::Trouble;
use cluster_model::room::{NodeFacts, Nodes};
use cluster_model::view::ClusterView;
use std::collections::BTreeMap;
use topology_graph::{Level, PciAddress};

/// One node's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    /// The machine type, otherwise the hash of its shape.
    pub(crate) machine: String,
    pub(crate) fabric: Option<String>,
    pub(crate) gpus: Amount,
    /// Ports: virtual functions of one port are one NIC.
    pub(crate) nics: Amount,
    /// Functions, if a port has several.
    pub(crate) functions: Option<Amount>,
    /// Cells of NUMA nodes with GPUs and NICs, all of them free; `None` if the node has no graph, or
    /// binds NICs late.
    pub(crate) whole_cells: Option<usize>,
    /// NICs whose port is not active, or whose link is degraded: `mlx5_0: port is Down`.
    pub(crate) ports: Vec<String>,
    /// Other NICs that are tainted: `mlx5_0: has the taint …`.
    pub(crate) tainted_nics: Vec<String>,
    /// Tainted GPUs: `GPU0: has the taint …`.
    pub(crate) tainted_gpus: Vec<String>,
    /// Whether its NICs are places, each of which stands for any NIC until a pod starts.
    pub(crate) binds_late: bool,
    /// Why the node takes no new pods.
    pub(crate) closed: Option<Closed>,
    /// Pods of lower priority than one that waits for devices.
    pub(crate) lower: Vec<LowerHolder>,
}

impl NodeState {
    pub(crate) fn new(view: &ClusterView, node: &str, facts: &Nodes) -> Self {
        let mut state = Self {
            name: node.to_owned(),
            machine: machine(view, node),
            fabric: fabric(view, node),
            gpus: Amount::default(),
            nics: Amount::default(),
            functions: None,
            whole_cells: None,
            ports: Vec::new(),
            tainted_nics: Vec::new(),
            tainted_gpus: Vec::new(),
            binds_late: places(view, node).next().is_some(),
            closed: facts.facts(node).and_then(NodeFacts::closed),
            lower: Vec::new(),
        };
        let mut taken = view.inventory().state().clone();
        let mut functions = Amount::default();
        let devices = DeviceState::all(view, node);
        for it in &devices {
            let Some(trouble) = &it.trouble else { continue };
            let NodeDevice { device, role, .. } = it.published;
            let name = device_names::short(view, node, device);
            let text = format!("{name}: {}", words(trouble));
            let troubles = match trouble {
                _ if role.is_gpu() => &mut state.tainted_gpus,
                Trouble::Tainted(_) => &mut state.tainted_nics,
                Trouble::PortDown { .. } | Trouble::Degraded => &mut state.ports,
            };
            troubles.push(text);
            taken.insert(device.id().clone());
        }
        for unit in Unit::of(devices) {
            let amount = unit.amount();
            if unit.is_gpu() {
                state.gpus.add(amount);
            } else {
                functions.add(amount);
                state.nics.add(amount.as_one());
            }
        }
        state.functions = Some(functions).filter(|functions| functions.all > state.nics.all);
        // Nobody knows which NICs the places in use stand for.
        let devices = NodeDevices::new(view, node).filter(|_| !state.binds_late);
        state.whole_cells = devices.map(|it| it.whole_cells(Level::Numa, &taken));
        state
    }
}

impl NodeState {
    /// Counts the GPUs of the node's device plugin, if no DRA driver publishes any: those that pods have by
    /// their limits, and those that the device plugin calls healthy.
    pub(crate) fn with_plugin_gpus(mut self, view: &ClusterView, facts: &Nodes) -> Self {
        let mut resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
        let offered = resources
            .find_map(|resource| Some((*resource, view.plugin_units(&self.name, resource)?)));
        if let Some((resource, all)) = offered.filter(|_| self.gpus.all == 0) {
            let healthy = facts.facts(&self.name).map(|facts| facts.units(resource));
            let healthy = healthy.and_then(|units| u64::try_from(units).ok()).unwrap_or(all);
            let used: u64 = view.plugin_pods(&self.name, resource).map(|(_, units)| units).sum();
            self.gpus = Amount {
                free: count(healthy.saturating_sub(used)),
                partly: 0,
                unusable: count(all.saturating_sub(healthy)),
                all: count(all),
            };
        }
        self
    }

    /// What keeps new pods from devices: GPUs first.
    pub(crate) fn troubles(&self) -> Vec<&str> {
        self.tainted_gpus
            .iter()
            .chain(&self.ports)
            .chain(&self.tainted_nics)
            .map(String::as_str)
            .collect()
    }
}

fn count(units: u64) -> usize {
    usize::try_from(units).unwrap_or(usize::MAX)
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.free += other.free;
        self.partly += other.partly;
        self.unusable += other.unusable;
        self.all += other.all;
    }

    /// One port with these functions: free if one is, or else partly if one is, unusable if all are.
    pub(crate) fn as_one(self) -> Self {
        let is_free = self.free > 0;
        Self {
            free: usize::from(is_free),
            partly: usize::from(!is_free && self.partly > 0),
            unusable: usize::from(self.unusable == self.all),
            all: 1,
        }
    }
}

/// A GPU, or a port of a NIC with its functions.
#[derive(Debug)]
pub(crate) struct Unit<'v> {
    /// The GPU, or the functions of the port that are published.
    pub(crate) functions: Vec<DeviceState<'v>>,
}

impl<'v> Unit<'v> {
    /// GPUs first, each by address.
    pub(crate) fn of(devices: Vec<DeviceState<'v>>) -> Vec<Self> {
        let mut units: BTreeMap<(bool, Option<PciAddress>, String), Self> = BTreeMap::new();
        for state in devices {
            let it = &state.published;
            let is_nic = it.role.is_nic();
            let port = if is_nic { it.port() } else { it.address };
            // Functions of a port are one NIC, and two drivers can publish GPUs at one address.
            let name =
                if is_nic && port.is_some() { String::new() } else { it.device.id().to_string() };
            let unit = units.entry((is_nic, port, name));
            unit.or_insert_with(|| Self { functions: Vec::new() }).functions.push(state);
        }
        units.into_values().collect()
    }

    pub(crate) fn is_gpu(&self) -> bool {
        self.functions.iter().all(|it| it.published.role.is_gpu())
    }

    /// Its functions.
    pub(crate) fn amount(&self) -> Amount {
        let mut amount = Amount::default();
        for it in &self.functions {
            amount.add(Amount {
                free: usize::from(it.is_free),
                partly: usize::from(it.is_partly),
                unusable: usize::from(it.trouble.is_some()),
                all: 1,
            });
        }
        amount
    }
}

/// Why no new pod gets a device.
pub(crate) fn words(trouble: &Trouble<'_>) -> String {
    match trouble {
        Trouble::PortDown { state: Some(state), .. } => {
            format!("port is {state}, not {}", names::PORT_ACTIVE)
        }
        Trouble::PortDown { taint: Some((taint, _)), .. } | Trouble::Tainted((taint, _)) => {
            format!("has the taint {taint}")
        }
        Trouble::PortDown { .. } => "port is down".to_owned(),
        Trouble::Degraded => "PCIe link is slower or narrower than possible".to_owned(),
    }
}

/// The machine type of a node, otherwise the hash of its shape.
pub(crate) fn machine(view: &ClusterView, node: &str) -> String {
    match (machines::type_name(view, node), view.topology(node)) {
        (Some(name), _) => name,
        (None, Some(graph)) => format!("shape {}", graph.shape()),
        (None, None) => "unknown".to_owned(),
    }
}

/// The fabric of a node by its label, otherwise by its graph.
pub(crate) fn fabric(view: &ClusterView, node: &str) -> Option<String> {
    let label = view.node_label(node, label::NODE_FABRIC);
    label.or_else(|| view.fabric(node)).map(str::to_owned)
}

/// Labels of a node.
pub(crate) fn labels(view: &ClusterView, node: &str) -> BTreeMap<String, String> {
    let labels = view.inventory().node(node).map(|node| &node.labels);
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
