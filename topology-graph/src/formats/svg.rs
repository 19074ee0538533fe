//! A picture of the node: NUMA nodes side by side, GPUs above, NICs below, a frame
//! around what shares a switch, and a line for each pair in the colour of its path.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{device_label, half_label};
use crate::{Level, NumaNode, PathKind, PciAddress, Topology};

const BOX_WIDTH: usize = 150;
const BOX_HEIGHT: usize = 44;
/// Letters that fit in a box at the picture's font size.
const BOX_LETTERS: usize = 20;
const GAP: usize = 16;
const GPU_ROW: usize = 70;
const NIC_ROW: usize = 210;
const HEIGHT: usize = 300;
const HALF_TOP: usize = 20;
const TITLE: usize = 44;

/// Where each device's box is.
type Places = BTreeMap<PciAddress, (usize, usize)>;

pub(super) fn svg(topology: &Topology) -> String {
    let mut places = Places::new();
    let mut body = String::new();
    let mut left = GAP;
    for node in nodes(topology) {
        left = half(topology, node, left, &mut places, &mut body);
    }
    frames(topology, &places, &mut body);
    for pair in topology.pairs() {
        line(&places, pair.gpu, pair.nic, pair.path, &mut body);
    }
    for (address, place) in &places {
        device(topology, *address, *place, &mut body);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {left} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n{body}</svg>\n"
    )
}

fn nodes(topology: &Topology) -> Vec<Option<NumaNode>> {
    let mut nodes: Vec<_> = topology.shape.devices().map(|(_, vertex)| vertex.numa).collect();
    nodes.sort_unstable_by_key(|node| (node.is_none(), *node));
    nodes.dedup();
    nodes
}

/// One NUMA node; returns where the next begins.
fn half(
    topology: &Topology,
    node: Option<NumaNode>,
    left: usize,
    places: &mut Places,
    body: &mut String,
) -> usize {
    let gpus: Vec<_> = topology.gpus().iter().filter(|gpu| gpu.numa == node).collect();
    let nics: Vec<_> = topology.nics().iter().filter(|nic| nic.numa == node).collect();
    let columns = gpus.len().max(nics.len());
    let width = columns * (BOX_WIDTH + GAP) + GAP;
    let x = |column: usize| left + GAP + column * (BOX_WIDTH + GAP);
    places.extend(gpus.iter().enumerate().map(|(at, gpu)| (gpu.address, (x(at), GPU_ROW))));
    places.extend(nics.iter().enumerate().map(|(at, nic)| (nic.address, (x(at), NIC_ROW))));
    let height = HEIGHT - 2 * HALF_TOP;
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<rect x=\"{left}\" y=\"{HALF_TOP}\" width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#f4f4f4\" stroke=\"#999\"/>\n\
         <text x=\"{}\" y=\"{TITLE}\" font-weight=\"bold\">{}</text>",
        left + GAP,
        half_label(node)
    );
    left + width + GAP
}

/// A frame for each switch with more than one device in the picture.
fn frames(topology: &Topology, places: &Places, body: &mut String) {
    for cell in topology.cells(Level::Switch) {
        let devices: Vec<_> =
            cell.gpus.iter().chain(&cell.nics).filter_map(|a| places.get(a)).collect();
        let (lefts, tops) = (devices.iter().map(|(x, _)| *x), devices.iter().map(|(_, y)| *y));
        let (Some(left), Some(right)) = (lefts.clone().min(), lefts.max()) else { continue };
        let (Some(top), Some(bottom)) = (tops.clone().min(), tops.max()) else { continue };
        if devices.len() > 1 {
            let _ = writeln!(
                body,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#fff\" stroke=\"#666\" stroke-dasharray=\"4 3\"><title>{}</title></rect>",
                left - 6,
                top - 6,
                right - left + BOX_WIDTH + 12,
                bottom - top + BOX_HEIGHT + 12,
                cell.key
            );
        }
    }
}

fn line(places: &Places, gpu: PciAddress, nic: PciAddress, path: PathKind, body: &mut String) {
    if let (Some((gpu_x, gpu_y)), Some((nic_x, nic_y))) = (places.get(&gpu), places.get(&nic)) {
        let (gpu_x, nic_x) = (gpu_x + BOX_WIDTH / 2, nic_x + BOX_WIDTH / 2);
        let colour = colour(path);
        let (from, to) = (gpu_y + BOX_HEIGHT, *nic_y);
        let _ = writeln!(
            body,
            "<line x1=\"{gpu_x}\" y1=\"{from}\" x2=\"{nic_x}\" y2=\"{to}\" stroke=\"{colour}\" stroke-width=\"3\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{path}</text>",
            usize::midpoint(gpu_x, nic_x) + 6,
            usize::midpoint(from, to)
        );
    }
}

fn device(topology: &Topology, address: PciAddress, (x, y): (usize, usize), body: &mut String) {
    let fill = if topology.gpu(address).is_some() { "#b8e0b8" } else { "#b8d0f0" };
    let label = device_label(topology, address).unwrap_or_default();
    let (text_x, first, second) = (x + 8, y + 18, y + 36);
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"{fill}\" stroke=\"#444\"/>\n\
         <text x=\"{text_x}\" y=\"{first}\">{}</text>\n\
         <text x=\"{text_x}\" y=\"{second}\" fill=\"#555\">{address}</text>",
        escape(&shortened(&label))
    );
}

/// Near is green, far is red.
fn colour(path: PathKind) -> &'static str {
    match path {
        PathKind::Same | PathKind::NvLink(_) | PathKind::Pix => "#2a8a2a",
        PathKind::Pxb => "#7a9a1a",
        PathKind::Phb => "#c0901a",
        PathKind::Node => "#d0701a",
        PathKind::Sys | PathKind::Unknown => "#c02a2a",
    }
}

/// As much of a name as a box has room for.
fn shortened(label: &str) -> String {
    match label.char_indices().nth(BOX_LETTERS) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

fn escape(text: &str) -> String {
    let plain: String = text.chars().filter(|character| !character.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
