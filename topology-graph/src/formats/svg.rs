//! A picture of the machine: a row per NUMA node with its trees of root ports and switches, at most
//! 1,200 pixels wide, in light and dark colours.
//!
//! The outline holds the content, `page` and `tree` the layout, `theme` the colours; `draw` writes
//! the SVG.

mod captions;
mod draw;
mod page;
mod scene;
mod text;
mod theme;
mod tree;

use std::collections::BTreeMap;

use super::gpu_links::{is_boxed, mesh_name};
use super::outline::outline;
use crate::graph::Mesh;
use crate::{PathKind, Topology};

pub use theme::{ParseThemeError, Theme};

/// Renders the graph as an SVG picture; the text ends with a newline.
pub fn svg(topology: &Topology, theme: Theme) -> String {
    draw::draw(&page::page(&outline(topology), &fabrics(topology)), theme)
}

/// The GPU meshes other than PCIe: name, and how the GPUs are connected.
fn fabrics(topology: &Topology) -> Vec<(String, String)> {
    let meshes = topology.graph.meshes();
    let (boxed, single): (Vec<Mesh>, Vec<Mesh>) = meshes.into_iter().partition(is_boxed);
    let boxed = boxed.into_iter().map(|mesh| {
        let gpus = if mesh.gpus.len() == topology.gpus().len() {
            format!("the {} GPUs", mesh.gpus.len())
        } else {
            gpu_names(topology, &mesh).join(", ")
        };
        (mesh_name(&mesh), format!("{} between every two of {gpus}", mesh.fabric.path()))
    });
    let mut pairs: BTreeMap<(PathKind, &str), Vec<String>> = BTreeMap::new();
    for mesh in &single {
        let key = (mesh.fabric.path(), mesh_name(mesh));
        pairs.entry(key).or_default().push(gpu_names(topology, mesh).join("–"));
    }
    let pairs =
        pairs.into_iter().map(|((path, name), ends)| (name, format!("{path} {}", ends.join(", "))));
    // What is not known is said as in the matrix.
    let note = topology.note_on_nvlinks().map(|note| ("NVLink", note.trim().replace('\n', " ")));
    boxed.chain(pairs).chain(note).map(|(name, text)| (name.to_owned(), text)).collect()
}

fn gpu_names(topology: &Topology, mesh: &Mesh) -> Vec<String> {
    let names = mesh.gpus.iter().map(|address| {
        topology.gpu(*address).map_or_else(|| address.to_string(), |gpu| gpu.name.clone())
    });
    names.collect()
}
