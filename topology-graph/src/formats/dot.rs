//! The graph for Graphviz, written by petgraph: sockets, NUMA nodes and the PCI tree, PCIe links
//! with their speed, SLIT distances as dotted lines, one point per GPU mesh, and the pair plan in
//! bold.

use std::collections::BTreeMap;

use petgraph::dot::{Config, Dot};
use petgraph::graph::{NodeIndex, UnGraph};

use super::gpu_links::mesh_label;
use super::label;
use crate::Topology;
use crate::graph::{Edge, Link, Place, Role, Vertex};

/// The picture: Graphviz attributes of each vertex and edge.
#[derive(Default)]
struct Picture {
    graph: UnGraph<String, String>,
    places: BTreeMap<Place, NodeIndex>,
}

pub(super) fn dot(topology: &Topology) -> String {
    let mut picture = Picture::default();
    for vertex in topology.graph.vertices().filter(|vertex| is_drawn(topology, vertex)) {
        let name = label(topology, vertex);
        let attributes = format!("label={}, {}", quote(&name), style(vertex.role));
        let index = picture.graph.add_node(attributes);
        picture.places.insert(vertex.place, index);
    }
    for (below, above, edge) in topology.graph.edges() {
        if let Some(attributes) = line(edge).filter(|_| below.place != above.place) {
            // Graphviz draws the first end above the second.
            picture.join(above.place, below.place, attributes);
        }
    }
    picture.meshes(topology);
    for pair in topology.pairs() {
        let attributes = format!("style=bold, label=\"{}\", constraint=false", pair.path);
        picture.join(Place::Function(pair.gpu), Place::Function(pair.nic), attributes);
    }
    picture.write()
}

impl Picture {
    fn join(&mut self, a: Place, b: Place, attributes: String) {
        if let (Some(&a), Some(&b)) = (self.places.get(&a), self.places.get(&b)) {
            self.graph.add_edge(a, b, attributes);
        }
    }

    /// Two GPUs get an edge between them; more get a point with an edge to each.
    fn meshes(&mut self, topology: &Topology) {
        for mesh in topology.graph.meshes() {
            let path = mesh.fabric.path();
            let gpus: Vec<Place> = mesh.gpus.iter().copied().map(Place::Function).collect();
            if let [a, b] = gpus.as_slice() {
                let attributes = format!("style=dashed, label=\"{path}\", constraint=false");
                self.join(*a, *b, attributes);
                continue;
            }
            let name = mesh_label(&mesh);
            let point = self.graph.add_node(format!(
                "label={}, shape=hexagon, style=filled, fillcolor=\"#d8f0d8\"",
                quote(&name)
            ));
            for gpu in gpus.iter().filter_map(|gpu| self.places.get(gpu)) {
                self.graph.add_edge(point, *gpu, "style=dashed, constraint=false".to_owned());
            }
        }
    }

    fn write(&self) -> String {
        let config = [Config::NodeNoLabel, Config::EdgeNoLabel, Config::GraphContentOnly];
        let content = Dot::with_attr_getters(
            &self.graph,
            &config,
            &|_, edge| edge.weight().clone(),
            &|_, (_, attributes)| attributes.clone(),
        );
        format!(
            "graph topology {{\n    node [shape=box, fontname=\"sans-serif\"];\n{content:?}}}\n"
        )
    }
}

/// Nodes without CPUs and devices are omitted: a GB300 has 32 of them.
fn is_drawn(topology: &Topology, vertex: &Vertex) -> bool {
    let mut nodes_of_devices = topology.graph.vertices().filter_map(|device| device.numa);
    vertex.role != Role::NumaNode
        || !vertex.cpus.is_empty()
        || nodes_of_devices.any(|node| Place::Numa(node) == vertex.place)
}

/// The attributes of an edge. Edges between GPUs are drawn per mesh instead.
fn line(edge: &Edge) -> Option<String> {
    match edge {
        Edge::Pcie(Link { possible, current }) => {
            let link = current.or(*possible).map(|link| format!("label=\"{link}\""));
            Some(link.unwrap_or_default())
        }
        Edge::Attachment => Some("color=\"#888888\"".to_owned()),
        Edge::DataPath => Some("style=dotted, label=\"data\", constraint=false".to_owned()),
        Edge::Slit { there, back } => {
            let label = match (there, back) {
                (Some(there), Some(back)) if there != back => format!("{there}/{back}"),
                (Some(one), _) | (None, Some(one)) => one.to_string(),
                (None, None) => "?".to_owned(),
            };
            Some(format!("style=dotted, label=\"{label}\", constraint=false"))
        }
        Edge::ChipToChip { .. } => Some("style=bold, label=\"C2C\", constraint=false".to_owned()),
        Edge::Fabric { .. } => None,
    }
}

fn style(role: Role) -> &'static str {
    match role {
        Role::Gpu => "style=filled, fillcolor=\"#b8e0b8\"",
        Role::Nic => "style=filled, fillcolor=\"#b8d0f0\"",
        Role::Nvme => "style=filled, fillcolor=\"#e8e0c8\"",
        Role::Socket | Role::NumaNode => "style=filled, fillcolor=\"#f2f4f7\"",
        Role::HostBridge => "shape=oval",
        Role::RootPort | Role::SwitchPort | Role::Switch | Role::DataPath => "style=rounded",
    }
}

fn quote(text: &str) -> String {
    let escaped: String = text.chars().filter(|character| !character.is_control()).collect();
    format!("\"{}\"", escaped.replace('\\', "\\\\").replace('"', "\\\""))
}
