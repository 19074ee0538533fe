//! The tree of `lspci -tv`.
//!
//! ```text
//! -+-[0000:97]-+-00.0  Intel Corporation Device 09a2
//!  |           \-02.0-[98-9e]--+-00.0-[99-9e]--+-00.0-[9a]----00.0  Mellanox Technologies …
//!  |                           |               \-01.0-[9b]----00.0  NVIDIA Corporation …
//!  \-[0000:00]-+-00.0
//! ```
//!
//! What is at or left of the column of a line's first device belongs to the lines above it.

use topology_graph::{PciAddress, PcieRoot};

/// A function with what is above it and its name.
type Listed<'t> = (PciAddress, Option<PcieRoot>, Vec<PciAddress>, &'t str);

/// A bus on the way to the current column.
#[derive(Clone, Copy)]
struct Level {
    /// The column where its number stands.
    column: usize,
    domain: u32,
    bus: u8,
    /// The bridge to it; `None` for a root bus.
    bridge: Option<PciAddress>,
}

pub(super) fn functions<'t>(lines: &[&'t str]) -> Vec<Listed<'t>> {
    let mut levels: Vec<Level> = Vec::new();
    let mut found = Vec::new();
    let mut domain = 0;
    for line in lines {
        if !is_of_tree(line) {
            continue;
        }
        let Some(start) = line.find(|sign: char| sign.is_ascii_hexdigit() || sign == '[') else {
            continue;
        };
        levels.retain(|level| level.column < start);
        read_line(line, start, &mut levels, &mut domain, &mut found);
    }
    found
}

/// Returns true if the line begins as a line of the tree.
fn is_of_tree(line: &str) -> bool {
    let drawn = line.trim_start_matches([' ', '|', '+', '\\', '-']);
    let indent = &line[..line.len() - drawn.len()];
    indent.ends_with('-') && (drawn.starts_with('[') || is_slot(drawn))
}

/// `1f.7`.
fn is_slot(text: &str) -> bool {
    matches!(text.as_bytes(), [a, b, b'.', c, ..]
        if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() && (b'0'..=b'7').contains(c))
}

fn read_line<'t>(
    line: &'t str,
    start: usize,
    levels: &mut Vec<Level>,
    domain: &mut u32,
    found: &mut Vec<Listed<'t>>,
) {
    let mut at = start;
    let mut last: Option<PciAddress> = None;
    while let Some(rest) = line.get(at..) {
        if let Some(text) = rest.strip_prefix('[') {
            let Some((buses, _)) = text.split_once(']') else { return };
            let Some(level) = bus(buses, at, last, domain) else { return };
            levels.push(level);
            at += buses.len() + 2;
        } else if is_slot(rest) {
            let Some(address) = slot(rest, levels) else { return };
            last = Some(address);
            at += 4;
            let after = line.get(at..).unwrap_or_default();
            let is_bridge = after.starts_with("-[");
            let name = if is_bridge { "" } else { after.trim() };
            found.push((address, root(levels), bridges(levels), name));
            if !is_bridge {
                return;
            }
        } else {
            at += 1;
            if !rest.starts_with(['-', '+', '\\']) {
                return;
            }
        }
    }
}

/// `0000:97`, `98-9e` or `9a`.
fn bus(text: &str, column: usize, bridge: Option<PciAddress>, domain: &mut u32) -> Option<Level> {
    let number = |text: &str| u8::from_str_radix(text, 16).ok();
    if let Some((segment, bus)) = text.split_once(':') {
        *domain = u32::from_str_radix(segment, 16).ok()?;
        let bus = bus.split('-').next()?;
        return Some(Level { column, domain: *domain, bus: number(bus)?, bridge: None });
    }
    let first = text.split('-').next()?;
    Some(Level { column, domain: *domain, bus: number(first)?, bridge })
}

/// The function on the innermost bus. A tree of one root bus may not name it.
fn slot(text: &str, levels: &[Level]) -> Option<PciAddress> {
    let device = u8::from_str_radix(text.get(..2)?, 16).ok()?;
    let function = u8::from_str_radix(text.get(3..4)?, 16).ok()?;
    let (domain, bus) = levels.last().map_or((0, 0), |level| (level.domain, level.bus));
    PciAddress::new(domain, bus, device, function)
}

fn root(levels: &[Level]) -> Option<PcieRoot> {
    let top = levels.first();
    top.filter(|level| level.bridge.is_none()).map(|level| PcieRoot::new(level.domain, level.bus))
}

fn bridges(levels: &[Level]) -> Vec<PciAddress> {
    levels.iter().filter_map(|level| level.bridge).collect()
}
