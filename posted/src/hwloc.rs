//! XML of hwloc 2 and 3 (`lstopo --of xml`). Its document type is named but never read.
//!
//! hwloc puts host bridges below the object whose memory is near, so the NUMA node of a device is
//! that of the nearest object with exactly one.

mod matrices;

use std::collections::BTreeMap;

use roxmltree::{Document, Node, ParsingOptions};
use topology_graph::class::is_network;
use topology_graph::{
    CpuSet, Netdev, NumaNode, NumaNodeFacts, NvmeController, PciAddress, PcieLink, PcieRoot,
    RdmaDevice, Snapshot, SocketFacts,
};

use crate::machine::{Functions, PostedError, device_id, function, nothing};

/// The maximum number of XML nodes; a machine with thousands of CPUs has about a hundred thousand.
const MOST_NODES: u32 = 4_000_000;
/// Objects are nested a few dozen deep; bridges are nested at most 256 deep, as there are 256 buses.
const DEEPEST: usize = 512;

/// The XML in a text, without what people wrote before and after it.
pub(super) fn part(text: &str) -> Option<&str> {
    let start = ["<?xml", "<topology"].iter().filter_map(|start| text.find(start)).min();
    let start = start.or_else(|| text.trim_start().starts_with('<').then_some(0))?;
    let end = text.rfind('>').filter(|end| *end > start).map_or(text.len(), |end| end + 1);
    text.get(start..end)
}

pub(super) fn read(text: &str) -> Result<Snapshot, PostedError> {
    let options =
        ParsingOptions { allow_dtd: true, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let text = unwrapped(text);
    let document = Document::parse_with_options(&text, options).map_err(PostedError::Xml)?;
    let top = document.root_element();
    let is_new = top.attribute("version").is_some_and(|version| !version.starts_with('2'));
    let mut walk =
        Walk { snapshot: nothing(), functions: Functions::new(), numbers: BTreeMap::new(), is_new };
    walk.object(top, &Above::default(), DEEPEST)?;
    let Walk { mut snapshot, functions, numbers, .. } = walk;
    snapshot.numa_nodes.sort_by_key(|node| node.node);
    snapshot.numa_nodes.dedup_by_key(|node| node.node);
    matrices::numa_distances(top, &mut snapshot.numa_nodes)?;
    snapshot.nvlinks = matrices::nvlinks(top, &numbers, &functions)?;
    snapshot.xgmi = matrices::xgmi(top, &numbers)?;
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
    /// The functions of PCI and operating system devices, by the numbers that matrices have for them.
    numbers: BTreeMap<u64, PciAddress>,
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

/// The lines as hwloc wrote them. It begins each with a tag, so what does not is the rest of a line that a
/// terminal or a mail broke.
fn unwrapped(text: &str) -> String {
    text.trim_start().lines().fold(String::new(), |mut whole, line| {
        if whole.is_empty() {
            return line.to_owned();
        }
        if line.trim_start().starts_with('<') {
            whole.push('\n');
        } else if whole.ends_with('"') && is_closed(&whole) {
            // A mail breaks lines between attributes, and takes the space away.
            whole.push(' ');
        }
        whole + line
    })
}

/// Returns true if the quotation marks of the last tag are in pairs.
fn is_closed(text: &str) -> bool {
    let tag = text.rsplit('<').next().unwrap_or_default();
    tag.matches('"').count().is_multiple_of(2)
}

/// The value of an attribute, if an object has it.
fn parsed<T>(
    node: Node<'_, '_>,
    attribute: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, PostedError> {
    let Some(value) = node.attribute(attribute) else { return Ok(None) };
    parse(value).map(Some).ok_or_else(|| wrong(node, attribute, value))
}

/// The error about a value that hwloc does not write.
fn wrong(node: Node<'_, '_>, attribute: &str, value: &str) -> PostedError {
    let line = node.document().text_pos_at(node.range().start).row;
    PostedError::Attribute { line, attribute: attribute.to_owned(), value: value.to_owned() }
}

impl Walk {
    fn object(
        &mut self,
        node: Node<'_, '_>,
        above: &Above,
        deeper: usize,
    ) -> Result<(), PostedError> {
        let Some(deeper) = deeper.checked_sub(1) else { return Ok(()) };
        let mut inside = above.clone();
        if let Some(nodes) = parsed(node, "nodeset", bits)? {
            inside.numa = only_node(&nodes);
        }
        match node.attribute("type") {
            Some("Package") => self.snapshot.sockets.extend(socket(node)?),
            Some("NUMANode") => self.snapshot.numa_nodes.extend(numa_node(node)?),
            Some("Bridge") => self.bridge(node, &mut inside)?,
            Some("PCIDev") => {
                inside.function = self.function(node, above)?;
                self.number(node, inside.function)?;
            }
            Some("OSDev") => {
                self.device(node, above);
                self.number(node, above.function)?;
            }
            _ => {}
        }
        for child in node.children().filter(|child| child.has_tag_name("object")) {
            self.object(child, &inside, deeper)?;
        }
        Ok(())
    }

    fn number(
        &mut self,
        node: Node<'_, '_>,
        function: Option<PciAddress>,
    ) -> Result<(), PostedError> {
        let number = parsed(node, "gp_index", |number| number.parse().ok())?;
        self.numbers.extend(number.zip(function));
        Ok(())
    }

    fn bridge(&mut self, node: Node<'_, '_>, inside: &mut Above) -> Result<(), PostedError> {
        if node.attribute("bridge_type") == Some("0-1") {
            inside.root = parsed(node, "bridge_pci", root_bus)?;
            inside.bridges.clear();
            return Ok(());
        }
        let above = inside.clone();
        inside.bridges.extend(self.function(node, &above)?);
        Ok(())
    }

    fn function(
        &mut self,
        node: Node<'_, '_>,
        above: &Above,
    ) -> Result<Option<PciAddress>, PostedError> {
        let address = parsed(node, "pci_busid", |address| address.parse::<PciAddress>().ok())?;
        let Some(address) = address else { return Ok(None) };
        let mut known = function(address, above.root, &above.bridges);
        known.numa_node = above.numa;
        if let Some(Kind { class, device, subsystem }) = parsed(node, "pci_type", kind)? {
            known.class = class << 8;
            (known.vendor, known.device) = device;
            (known.subsystem_vendor, known.subsystem_device) = subsystem.unzip();
        }
        known.current_link = parsed(node, "pci_link_speed", capacity)?.and_then(link);
        // A GPU slows its link down while it is idle; a NIC does not.
        known.max_link = known.current_link.filter(|_| is_network(known.class));
        // A function is never its own bridge, and the first listing of a function counts.
        known.bridges.retain(|bridge| *bridge != address);
        self.functions.entry(address).or_insert(known);
        Ok(Some(address))
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
}

fn socket(node: Node<'_, '_>) -> Result<Option<SocketFacts>, PostedError> {
    let Some(socket) = parsed(node, "os_index", |number| number.parse().ok())? else {
        return Ok(None);
    };
    Ok(Some(SocketFacts { socket, cpus: cpus(node)? }))
}

fn numa_node(node: Node<'_, '_>) -> Result<Option<NumaNodeFacts>, PostedError> {
    let Some(number) = parsed(node, "os_index", |number| number.parse().ok())? else {
        return Ok(None);
    };
    Ok(Some(NumaNodeFacts {
        node: NumaNode(number),
        cpus: cpus(node)?,
        distances: Vec::new(),
        memory_bytes: parsed(node, "local_memory", |bytes| bytes.parse().ok())?,
    }))
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

fn cpus(node: Node<'_, '_>) -> Result<CpuSet, PostedError> {
    Ok(parsed(node, "cpuset", bits)?.unwrap_or_default())
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
fn only_node(nodes: &CpuSet) -> Option<NumaNode> {
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

/// What a function is: `0302 [10de:2330] [10de:16c1] a1`.
struct Kind {
    class: u32,
    device: (u16, u16),
    subsystem: Option<(u16, u16)>,
}

fn kind(text: &str) -> Option<Kind> {
    let mut words = text.split_whitespace();
    let (class, device) = (hex(words.next()?)?, ids(words.next()?)?);
    Some(Kind { class, device, subsystem: words.next().and_then(ids) })
}

/// `31.507692`, in gigabytes per second.
fn capacity(text: &str) -> Option<f32> {
    text.parse().ok().filter(|capacity: &f32| capacity.is_finite())
}

/// The widest link with this capacity.
fn link(capacity: f32) -> Option<PcieLink> {
    if capacity <= 0.0 {
        return None;
    }
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
    device_id(text.strip_prefix('[')?.strip_suffix(']')?)
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
