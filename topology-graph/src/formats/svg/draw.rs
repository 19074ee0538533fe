//! Boxes and lines. All lengths are in pixels.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::device_label;
use super::{Group, Half};
use crate::{PathKind, PciAddress, Topology};

const BOX_WIDTH: usize = 150;
const BOX_HEIGHT: usize = 44;
/// Letters that fit in a box at the picture's font size.
const BOX_LETTERS: usize = 21;
const DISK_HEIGHT: usize = 28;
const GAP: usize = 16;
/// Around the boxes of a group.
const FRAME: usize = 8;
const COLUMN: usize = BOX_WIDTH + GAP;
const FABRIC_TOP: usize = 16;
const HALF_TOP: usize = 52;
const TITLE: usize = 76;
const GPU_ROW: usize = 104;
const NIC_ROW: usize = 240;
const DISK_ROW: usize = 308;
const LEGEND_WORD: usize = 84;

/// What each word is drawn in, near to far: from green to red.
const COLOURS: [(PathKind, &str); 6] = [
    (PathKind::Pix, "#1a8a2e"),
    (PathKind::Pxb, "#7a9a1a"),
    (PathKind::Phb, "#c09a1a"),
    (PathKind::Node, "#d0701a"),
    (PathKind::Sys, "#c02a2a"),
    (PathKind::Unknown, "#777777"),
];

/// The left upper corner of each device's box.
type Places = BTreeMap<PciAddress, (usize, usize)>;

pub(super) fn draw(topology: &Topology, halves: &[Half]) -> String {
    let has_disks = halves.iter().flat_map(|half| &half.groups).any(|g| !g.disks.is_empty());
    let bottom = if has_disks { DISK_ROW + DISK_HEIGHT } else { NIC_ROW + BOX_HEIGHT } + 2 * GAP;
    let mut picture = Picture { topology, bottom, places: Places::new(), body: String::new() };
    let mut left = GAP;
    for half in halves {
        left = picture.half(half, left);
    }
    picture.fabric(left);
    for pair in topology.pairs() {
        picture.line(pair.gpu, pair.nic, pair.path);
    }
    picture.devices();
    picture.legend();
    let (width, height) = (left.max(GAP + COLOURS.len() * LEGEND_WORD), bottom + 40);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
        picture.body
    )
}

struct Picture<'t> {
    topology: &'t Topology,
    /// Where the NUMA nodes end.
    bottom: usize,
    places: Places,
    body: String,
}

impl Picture<'_> {
    /// One NUMA node; returns where the next begins.
    fn half(&mut self, half: &Half, left: usize) -> usize {
        let width = half.columns().max(2) * COLUMN + GAP;
        let height = self.bottom - HALF_TOP;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            self.body,
            "<rect x=\"{left}\" y=\"{HALF_TOP}\" width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#f2f4f7\" stroke=\"#99a\"/>\n\
             <text x=\"{}\" y=\"{TITLE}\" font-size=\"14\" font-weight=\"bold\">{}</text>",
            left + GAP,
            escape(&half.title)
        );
        let mut column = left + GAP;
        for group in &half.groups {
            self.group(group, column);
            column += group.columns() * COLUMN;
        }
        left + width + GAP
    }

    fn group(&mut self, group: &Group, left: usize) {
        for (row, devices) in
            [(GPU_ROW, &group.gpus), (NIC_ROW, &group.nics), (DISK_ROW, &group.disks)]
        {
            let places = devices.iter().enumerate();
            self.places.extend(places.map(|(at, device)| (*device, (left + at * COLUMN, row))));
        }
        let Some(switch) = &group.switch else { return };
        let columns = group.gpus.len().max(group.nics.len());
        let top = if group.gpus.is_empty() { NIC_ROW } else { GPU_ROW } - FRAME;
        let end = if group.nics.is_empty() { GPU_ROW } else { NIC_ROW } + BOX_HEIGHT + FRAME;
        let _ = writeln!(
            self.body,
            "<rect x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#ffffff\" stroke=\"#667\" stroke-dasharray=\"4 3\"><title>switch {switch}</title></rect>\n\
             <text x=\"{}\" y=\"{}\" font-size=\"10\" fill=\"#667\">switch {switch}</text>",
            left - FRAME / 2,
            columns * COLUMN - GAP + FRAME,
            end - top,
            left + FRAME,
            end - FRAME - BOX_HEIGHT - 4
        );
    }

    /// What joins the GPUs beside PCIe, as a bar above all where it joins all alike.
    fn fabric(&mut self, right: usize) {
        let links = self.topology.graph.gpu_links();
        let Some(first) = links.first() else { return };
        let gpus = self.topology.gpus().len();
        let all = links.len() == gpus * (gpus - 1) / 2;
        let alike = links.iter().all(|link| link.fabric == first.fabric);
        let text = if all && alike {
            format!("{} between every two GPUs", first.fabric.path())
        } else {
            format!("{} links between GPUs, not all alike", links.len())
        };
        let (width, middle) = (right - 2 * GAP, right / 2);
        let _ = writeln!(
            self.body,
            "<rect x=\"{GAP}\" y=\"{FABRIC_TOP}\" width=\"{width}\" height=\"24\" rx=\"4\" fill=\"#d8f0d8\" stroke=\"#1a8a2e\"/>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            FABRIC_TOP + 16
        );
    }

    fn line(&mut self, gpu: PciAddress, nic: PciAddress, path: PathKind) {
        let (Some((gpu_x, gpu_y)), Some((nic_x, nic_y))) =
            (self.places.get(&gpu), self.places.get(&nic))
        else {
            return;
        };
        let (gpu_x, nic_x) = (gpu_x + BOX_WIDTH / 2, nic_x + BOX_WIDTH / 2);
        let (from, to, colour) = (gpu_y + BOX_HEIGHT, *nic_y, colour(path));
        let (text_x, text_y) = (usize::midpoint(gpu_x, nic_x) + 6, usize::midpoint(from, to));
        let _ = writeln!(
            self.body,
            "<line x1=\"{gpu_x}\" y1=\"{from}\" x2=\"{nic_x}\" y2=\"{to}\" stroke=\"{colour}\" stroke-width=\"4\"/>\n\
             <text x=\"{text_x}\" y=\"{text_y}\" font-weight=\"bold\" fill=\"{colour}\">{path}</text>"
        );
    }

    fn devices(&mut self) {
        for (address, (x, y)) in self.places.clone() {
            let is_disk = y == DISK_ROW;
            let height = if is_disk { DISK_HEIGHT } else { BOX_HEIGHT };
            let fill = match y {
                GPU_ROW => "#b8e0b8",
                NIC_ROW => "#b8d0f0",
                _ => "#e8e0c8",
            };
            let label = shortened(&device_label(self.topology, address).unwrap_or_default());
            let (text_x, first, second) = (x + 8, y + 18, y + 36);
            let _ = writeln!(
                self.body,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"#444\"><title>{address}</title></rect>\n\
                 <text x=\"{text_x}\" y=\"{first}\">{}</text>",
                escape(&label)
            );
            if !is_disk {
                let _ = writeln!(
                    self.body,
                    "<text x=\"{text_x}\" y=\"{second}\" fill=\"#555\">{address}</text>"
                );
            }
        }
    }

    /// Every word with its colour, near to far.
    fn legend(&mut self) {
        for (at, (path, colour)) in COLOURS.into_iter().enumerate() {
            let (left, top) = (GAP + at * LEGEND_WORD, self.bottom + 18);
            let _ = writeln!(
                self.body,
                "<line x1=\"{left}\" y1=\"{top}\" x2=\"{}\" y2=\"{top}\" stroke=\"{colour}\" stroke-width=\"4\"/>\n\
                 <text x=\"{}\" y=\"{}\">{path}<title>{}</title></text>",
                left + 24,
                left + 30,
                top + 4,
                path.meaning()
            );
        }
    }
}

/// That of the nearest word that is not nearer.
fn colour(path: PathKind) -> &'static str {
    let known = COLOURS.iter().find(|(kind, _)| path <= *kind);
    known.map_or("#777777", |(_, colour)| colour)
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
