//! The tree of `lspci -tv`.
//!
//! ```text
//! -+-[0000:97]-+-00.0  Intel Corporation Device 09a2
//!  |           \-02.0-[98-9e]--+-00.0-[99-9e]--+-00.0-[9a]----00.0  Mellanox Technologies …
//!  |                           |               \-01.0-[9b]----00.0  NVIDIA Corporation …
//!  \-[0000:00]-+-00.0
//! ```
//!
//! `+` opens a branch in its column, `|` continues all open branches on each line, and `\` ends one. A line
//! whose columns say otherwise was changed after `lspci` wrote it, and its place would be a guess.

use topology_graph::{PciAddress, PcieRoot};

use crate::machine::PostedError;
use crate::plain::unwrapped;

/// A function with what is above it and its name.
pub(super) struct Listed {
    pub(super) address: PciAddress,
    pub(super) root: Option<PcieRoot>,
    pub(super) bridges: Vec<PciAddress>,
    pub(super) name: String,
}

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

/// The state of the walk over the lines.
#[derive(Default)]
struct Walk {
    levels: Vec<Level>,
    /// The columns of branches that have more lines.
    open: Vec<usize>,
    domain: u32,
    found: Vec<Listed>,
}

/// The functions of all trees in a text.
pub(super) fn functions(lines: &[&str]) -> Result<Vec<Listed>, PostedError> {
    let lines = unwrapped(lines, is_drawn);
    let mut walk = Walk::default();
    for (number, line) in &lines {
        if walk.open.is_empty() && !is_start(line) {
            continue;
        }
        let is_read = if walk.open.is_empty() { walk.first(line) } else { walk.next(line) };
        if is_read.is_none() {
            return Err(PostedError::Tree { line: *number, text: line.trim().to_owned() });
        }
    }
    match (walk.open.is_empty(), lines.last()) {
        (false, Some((number, line))) => {
            Err(PostedError::CutTree { line: *number, text: line.trim().to_owned() })
        }
        _ => Ok(walk.found),
    }
}

/// Returns true if a line begins as one of a tree.
pub(super) fn is_drawn(line: &str) -> bool {
    let drawn = line.trim_start_matches([' ', '|', '+', '\\', '-']);
    line[..line.len() - drawn.len()].ends_with('-') && (drawn.starts_with('[') || is_slot(drawn))
}

/// `-[0000:00]-` or `-+-[0000:97]-`.
fn is_start(line: &str) -> bool {
    let line = line.trim_start();
    let bus = line.strip_prefix("-+-[").or_else(|| line.strip_prefix("-["));
    bus.and_then(|bus| bus.split_once(']')).is_some_and(|(bus, _)| numbers(bus).is_some())
}

/// `1f.7`.
pub(super) fn is_slot(text: &str) -> bool {
    matches!(text.as_bytes(), [a, b, b'.', c, ..]
        if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() && (b'0'..=b'7').contains(c))
}

impl Walk {
    fn first(&mut self, line: &str) -> Option<()> {
        self.levels.clear();
        let start = line.find('-')?;
        self.items(line, start)
    }

    /// A line below open branches: each has its sign in its column, and the last one begins an item.
    fn next(&mut self, line: &str) -> Option<()> {
        let at = line.find(['+', '\\'])?;
        let drawn = line.get(..at)?;
        if !drawn.chars().all(|sign| sign == ' ' || sign == '|') {
            return None;
        }
        let bars: Vec<usize> = drawn.match_indices('|').map(|(column, _)| column).collect();
        let (last, others) = self.open.split_last()?;
        if *last != at || others != bars {
            return None;
        }
        if line[at..].starts_with('\\') {
            self.open.pop();
        }
        self.levels.retain(|level| level.column < at);
        self.items(line, at + 1)
    }

    /// Buses and functions to the right of a column.
    fn items(&mut self, line: &str, start: usize) -> Option<()> {
        let mut at = start;
        let mut bridge = None;
        loop {
            let rest = line.get(at..)?;
            if let Some(text) = rest.strip_prefix('[') {
                let (buses, _) = text.split_once(']')?;
                self.bus(buses, at, bridge)?;
                at += buses.len() + 2;
            } else if is_slot(rest) {
                let address = self.slot(rest)?;
                at += 4;
                let after = line.get(at..)?;
                let is_bridge = after.starts_with("-[");
                let name = if is_bridge { "" } else { after };
                if !name.is_empty() && !name.starts_with([' ', '\t']) {
                    return None;
                }
                self.add(address, name.trim());
                if !is_bridge {
                    return Some(());
                }
                bridge = Some(address);
            } else if let Some(drawn) = rest.strip_prefix('+') {
                self.open.push(at);
                at += 1;
                drawn.strip_prefix('-')?;
            } else if rest.starts_with('-') {
                at += 1;
            } else {
                // A bridge without devices ends its line.
                return (rest.trim().is_empty() && bridge.is_some()).then_some(());
            }
        }
    }

    fn add(&mut self, address: PciAddress, name: &str) {
        let top = self.levels.first().filter(|level| level.bridge.is_none());
        self.found.push(Listed {
            address,
            root: top.map(|level| PcieRoot::new(level.domain, level.bus)),
            bridges: self.levels.iter().filter_map(|level| level.bridge).collect(),
            name: name.to_owned(),
        });
    }

    fn bus(&mut self, text: &str, column: usize, bridge: Option<PciAddress>) -> Option<()> {
        let (domain, bus) = numbers(text)?;
        self.domain = domain.unwrap_or(self.domain);
        // Only a root bus has no bridge.
        if bridge.is_none() != self.levels.is_empty() {
            return None;
        }
        self.levels.push(Level { column, domain: self.domain, bus, bridge });
        Some(())
    }

    /// The function on the innermost bus.
    fn slot(&self, text: &str) -> Option<PciAddress> {
        let device = u8::from_str_radix(text.get(..2)?, 16).ok()?;
        let function = u8::from_str_radix(text.get(3..4)?, 16).ok()?;
        let Level { domain, bus, .. } = self.levels.last()?;
        PciAddress::new(*domain, *bus, device, function)
    }
}

/// `0000:97`, `98-9e` or `9a`: the domain, if there is one, and the first bus.
fn numbers(text: &str) -> Option<(Option<u32>, u8)> {
    let (domain, buses) = match text.split_once(':') {
        Some((domain, buses)) => (Some(u32::from_str_radix(domain, 16).ok()?), buses),
        None => (None, text),
    };
    let first = buses.split('-').next()?;
    (first.len() == 2).then_some((domain, u8::from_str_radix(first, 16).ok()?))
}
