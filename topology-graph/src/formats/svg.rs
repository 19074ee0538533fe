//! A picture of the node: NUMA nodes side by side, GPUs above, NICs and disks below, a
//! frame around what shares a switch, and a line for each pair in the colour of its
//! path. What is drawn where is decided here, how it is drawn in `draw`.

mod draw;

use std::collections::BTreeMap;

use crate::graph::{Role, Vertex};
use crate::{Level, NumaNode, PciAddress, Topology};

use super::{endpoints, half_label};

/// Boxes that stand together.
#[derive(Debug, Default)]
struct Group {
    /// The switch that all of them hang off.
    switch: Option<String>,
    gpus: Vec<PciAddress>,
    nics: Vec<PciAddress>,
    disks: Vec<PciAddress>,
}

/// One NUMA node, or those of which none is known.
#[derive(Debug)]
struct Half {
    title: String,
    groups: Vec<Group>,
}

pub(super) fn svg(topology: &Topology) -> String {
    draw::draw(topology, &halves(topology))
}

impl Group {
    fn columns(&self) -> usize {
        self.gpus.len().max(self.nics.len()).max(self.disks.len())
    }
}

impl Half {
    fn columns(&self) -> usize {
        self.groups.iter().map(Group::columns).sum()
    }
}

fn halves(topology: &Topology) -> Vec<Half> {
    let mut nodes: Vec<_> = endpoints(topology).map(|vertex| vertex.numa).collect();
    nodes.sort_unstable_by_key(|node| (node.is_none(), *node));
    nodes.dedup();
    let half = |node| Half { title: title(topology, node), groups: groups(topology, node) };
    nodes.into_iter().map(half).collect()
}

/// `NUMA node 0, socket 0, CPUs 0-63`.
fn title(topology: &Topology, node: Option<NumaNode>) -> String {
    let vertex = node.and_then(|node| topology.graph.numa(node));
    let socket = node.and_then(|node| topology.graph.socket_of(node));
    let socket = socket.map_or_else(String::new, |socket| format!(", socket {socket}"));
    let cpus = vertex.map(|vertex| &vertex.cpus).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.map_or_else(String::new, |cpus| format!(", CPUs {cpus}"));
    format!("{}{socket}{cpus}", half_label(node))
}

/// What shares a switch, else a GPU with its NICs, in the order of addresses.
fn groups(topology: &Topology, node: Option<NumaNode>) -> Vec<Group> {
    let anchors = anchors(topology);
    let mut groups: BTreeMap<PciAddress, Group> = BTreeMap::new();
    for vertex in endpoints(topology).filter(|vertex| vertex.numa == node) {
        let Some(address) = vertex.endpoint() else { continue };
        let (anchor, switch) = anchors.get(&address).cloned().unwrap_or((address, None));
        let group = groups.entry(anchor).or_default();
        group.switch = switch;
        group.row(vertex).push(address);
    }
    groups.into_values().collect()
}

impl Group {
    fn row(&mut self, vertex: &Vertex) -> &mut Vec<PciAddress> {
        match vertex.role {
            Role::Gpu => &mut self.gpus,
            Role::Nvme => &mut self.disks,
            _ => &mut self.nics,
        }
    }
}

/// The first device of each device's group, and the switch if there is one.
fn anchors(topology: &Topology) -> BTreeMap<PciAddress, (PciAddress, Option<String>)> {
    let pairs = topology.pairs().into_iter();
    let mut anchors: BTreeMap<_, _> = pairs.map(|pair| (pair.nic, (pair.gpu, None))).collect();
    for cell in topology.cells(Level::Switch) {
        let members: Vec<_> = cell.gpus.iter().chain(&cell.nics).copied().collect();
        let Some(anchor) = members.first().copied().filter(|_| members.len() > 1) else { continue };
        anchors.extend(members.iter().map(|member| (*member, (anchor, Some(cell.key.clone())))));
    }
    anchors
}
