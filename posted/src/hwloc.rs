//! XML of hwloc 2 and 3 (`lstopo --of xml`). Its document type is named but never read.
//!
//! hwloc puts host bridges below the object whose memory is near, so the NUMA node of a device is
//! that of the nearest object with exactly one.

use roxmltree::{Document, Node, ParsingOptions};
use topology_graph::class::is_network;
use topology_graph::{
    CpuSet, Netdev, NumaNode, NumaNodeFacts, NvmeController, PciAddress, PcieLink, PcieRoot,
    RdmaDevice, Snapshot, SocketFacts,
};

use crate::machine::{Functions, PostedError, function, nothing};

/// The maximum number of XML nodes; a machine with thousands of CPUs has about a hundred thousand.
const MOST_NODES: u32 = 4_000_000;
/// Objects are nested a few dozen deep; bridges are nested at most 256 deep, as there are 256 buses.
const DEEPEST: usize = 512;

pub(super) fn read(text: &str) -> Result<Snapshot, PostedError> {
    let options =
        ParsingOptions { allow_dtd: true, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(PostedError::Xml)?;
    let top = document.root_element();
    let is_new = top.attribute("version").is_some_and(|version| !version.starts_with('2'));
    let mut walk = Walk { snapshot: nothing(), functions: Functions::new(), is_new };
    walk.object(top, &Above::default(), DEEPEST);
    walk.snapshot.numa_nodes.sort_by_key(|node| node.node);
    walk.snapshot.numa_nodes.dedup_by_key(|node| node.node);
    walk.distances(top);
    let Walk { mut snapshot, functions, .. } = walk;
    snapshot.pci = functions.into_values().collect();
    snapshot.sockets.sort_by_key(|socket| socket.socket);
    snapshot.sockets.dedup_by_key(|socket| socket.socket);
    snapshot.rdma.sort_by(|a, b| a.name.cmp(&b.name));
    snapshot.netdevs.sort_by(|a, b| a.name.cmp(&b.name));
    snapshot.nvme.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(snapshot)
}

struct Walk {
    snapshot: Snapshot,
    functions: Functions,
    /// True for hwloc 3, which numbers the types of devices anew.
    is_new: bool,
}

/// What is above an object.
#[derive(Clone, Default)]
struct Above {
    root: Option<PcieRoot>,
    bridges: Vec<PciAddress>,
    numa: Option<NumaNode>,
    function: Option<PciAddress>,
}

impl Walk {
    fn object(&mut self, node: Node<'_, '_>, above: &Above, deeper: usize) {
        let Some(deeper) = deeper.checked_sub(1) else { return };
        let mut inside = above.clone();
        if let Some(numa) = node.attribute("nodeset").map(only_node) {
            inside.numa = numa;
        }
        match node.attribute("type") {
            Some("Package") => self.snapshot.sockets.extend(socket(node)),
            Some("NUMANode") => self.snapshot.numa_nodes.extend(numa_node(node)),
            Some("Bridge") => self.bridge(node, &mut inside),
            Some("PCIDev") => inside.function = self.function(node, above),
            Some("OSDev") => self.device(node, above),
            _ => {}
        }
        for child in node.children().filter(|child| child.has_tag_name("object")) {
            self.object(child, &inside, deeper);
        }
    }

    fn bridge(&mut self, node: Node<'_, '_>, inside: &mut Above) {
        if node.attribute("bridge_type") == Some("0-1") {
            inside.root = node.attribute("bridge_pci").and_then(root_bus);
            inside.bridges.clear();
            return;
        }
        let above = inside.clone();
        inside.bridges.extend(self.function(node, &above));
    }

    fn function(&mut self, node: Node<'_, '_>, above: &Above) -> Option<PciAddress> {
        let address: PciAddress = node.attribute("pci_busid")?.parse().ok()?;
        let mut known = function(address, above.root, &above.bridges);
        known.numa_node = above.numa;
        // `0302 [10de:2330] [10de:16c1] a1`
        let mut words = node.attribute("pci_type").unwrap_or_default().split_whitespace();
        known.class = words.next().and_then(hex).unwrap_or_default() << 8;
        if let Some((vendor, device)) = words.next().and_then(ids) {
            (known.vendor, known.device) = (vendor, device);
        }
        (known.subsystem_vendor, known.subsystem_device) = words.next().and_then(ids).unzip();
        known.current_link = node.attribute("pci_link_speed").and_then(link);
        // A GPU slows its link down while it is idle; a NIC does not.
        known.max_link = known.current_link.filter(|_| is_network(known.class));
        // A function is never its own bridge, and the first listing of a function counts.
        known.bridges.retain(|bridge| *bridge != address);
        self.functions.entry(address).or_insert(known);
        Some(address)
    }

    fn device(&mut self, node: Node<'_, '_>, above: &Above) {
        let (Some(name), Some(pci)) = (node.attribute("name"), above.function) else { return };
        let (network, verbs, block) = if self.is_new { ("16", "32", "1") } else { ("2", "3", "0") };
        let (name, pci) = (name.to_owned(), Some(pci));
        match node.attribute("osdev_type") {
            Some(kind) if kind == network => {
                self.snapshot.netdevs.push(Netdev { name, pci, part: None });
            }
            Some(kind) if kind == verbs => self.snapshot.rdma.push(rdma(name, pci)),
            Some(kind) if kind == block => {
                if let Some(name) = controller(&name) {
                    self.snapshot.nvme.push(NvmeController { name, pci });
                }
            }
            _ => {}
        }
    }

    /// The distances between NUMA nodes, in the units of the SLIT.
    fn distances(&mut self, top: Node<'_, '_>) {
        let matrices = top.children().filter(|child| child.has_tag_name("distances2"));
        let of_nodes = matrices.filter(|matrix| matrix.attribute("type") == Some("NUMANode"));
        let Some(matrix) = of_nodes
            .into_iter()
            .find(|matrix| matrix.attribute("name").is_none_or(|name| name == "NUMALatency"))
        else {
            return;
        };
        let numbers = |tag: &str| -> Vec<u32> {
            let texts = matrix.children().filter(|child| child.has_tag_name(tag));
            let words = texts.filter_map(|child| child.text()).flat_map(str::split_whitespace);
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let (nodes, values) = (numbers("indexes"), numbers("u64values"));
        let order: Vec<u32> = self.snapshot.numa_nodes.iter().map(|node| node.node.0).collect();
        if nodes.len() * nodes.len() != values.len() || nodes.is_empty() {
            return;
        }
        let at = |node: u32| nodes.iter().position(|known| *known == node);
        for facts in &mut self.snapshot.numa_nodes {
            let Some(row) = at(facts.node.0) else { continue };
            let distances = order.iter().map_while(|to| Some(values[row * nodes.len() + at(*to)?]));
            facts.distances = distances.collect();
        }
    }
}

fn socket(node: Node<'_, '_>) -> Option<SocketFacts> {
    let socket = node.attribute("os_index")?.parse().ok()?;
    Some(SocketFacts { socket, cpus: cpus(node) })
}

fn numa_node(node: Node<'_, '_>) -> Option<NumaNodeFacts> {
    Some(NumaNodeFacts {
        node: NumaNode(node.attribute("os_index")?.parse().ok()?),
        cpus: cpus(node),
        distances: Vec::new(),
        memory_bytes: node.attribute("local_memory").and_then(|bytes| bytes.parse().ok()),
    })
}

fn rdma(name: String, pci: Option<PciAddress>) -> RdmaDevice {
    RdmaDevice {
        name,
        pci,
        part: None,
        node_guid: None,
        sys_image_guid: None,
        ports: Vec::new(),
        uverbs: Vec::new(),
        umad: Vec::new(),
        issm: Vec::new(),
    }
}

fn cpus(node: Node<'_, '_>) -> CpuSet {
    node.attribute("cpuset").and_then(bits).unwrap_or_default()
}

/// `0x000000ff,0xffffffff`; a word of only zeros may be empty.
fn bits(text: &str) -> Option<CpuSet> {
    CpuSet::from_mask(
        &text
            .split(',')
            .map(|word| match word.trim_start_matches("0x") {
                "" => "0".to_owned(),
                word => word.to_owned(),
            })
            .collect::<Vec<_>>()
            .join(","),
    )
}

/// The node of a set of one.
fn only_node(text: &str) -> Option<NumaNode> {
    let nodes = bits(text)?;
    let mut nodes = nodes.iter();
    nodes.next().filter(|_| nodes.next().is_none()).map(NumaNode)
}

/// `0000:[00-06]`.
fn root_bus(text: &str) -> Option<PcieRoot> {
    let (domain, buses) = text.split_once(":[")?;
    let bus = buses.split('-').next()?;
    Some(PcieRoot::new(hex(domain)?, u8::from_str_radix(bus, 16).ok()?))
}

/// The speeds of PCIe in mega-transfers per second and lane.
const SPEEDS: [u32; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];

/// `31.507692`, in gigabytes per second: the widest link with this capacity.
fn link(text: &str) -> Option<PcieLink> {
    let capacity: f32 = text.parse().ok().filter(|capacity: &f32| *capacity > 0.0)?;
    let links = [16, 8, 4, 2, 1].into_iter().flat_map(|width| {
        SPEEDS.into_iter().map(move |megatransfers| PcieLink { megatransfers, width })
    });
    links.into_iter().find(|link| {
        let lanes = f32::from(link.width);
        let encoded = if link.megatransfers <= 5_000 { 0.8 } else { 128.0 / 130.0 };
        let speed = SPEEDS.iter().position(|speed| *speed == link.megatransfers);
        let gigatransfers = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0][speed.unwrap_or_default()];
        (gigatransfers * encoded / 8.0 * lanes / capacity - 1.0).abs() < 0.01
    })
}

/// `[10de:2330]`.
fn ids(text: &str) -> Option<(u16, u16)> {
    let (vendor, device) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    let id = |text| u16::from_str_radix(text, 16).ok();
    Some((id(vendor)?, id(device)?))
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// `nvme0` of its disk `nvme0n1`.
fn controller(disk: &str) -> Option<String> {
    let digits: String =
        disk.strip_prefix("nvme")?.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| format!("nvme{digits}"))
}
