//! The descriptions of `lspci -vvv`: a line for each function, and indented lines about it.

use std::collections::BTreeMap;

use topology_graph::class::{DISPLAY_3D, DISPLAY_OTHER, ETHERNET, NVSWITCH, PCI_BRIDGE};
use topology_graph::{AcsControl, NumaNode, PciAddress, PciFunction, PcieLink};

use super::tree::{is_drawn, is_slot};
use crate::machine::{PostedError, device_id};
use crate::plain::unwrapped;

/// What is said about a function; `None` if nothing is.
#[derive(Default)]
pub(super) struct Details {
    pub(super) name: String,
    /// The bridges above, if the listing has paths (`-PP`).
    pub(super) path: Vec<PciAddress>,
    class: Option<u32>,
    ids: Option<(u16, u16)>,
    /// For a bridge: the bus below it.
    pub(super) secondary: Option<u8>,
    numa: Option<NumaNode>,
    iommu_group: Option<u32>,
    driver: Option<String>,
    max_link: Option<PcieLink>,
    current_link: Option<PcieLink>,
    /// A root port, or a part of the root complex.
    is_of_root_complex: bool,
    acs: Option<AcsControl>,
    ats: Option<bool>,
}

/// Names of classes with their numbers (PCI ID database).
const CLASSES: [(&str, u32); 13] = [
    ("VGA compatible controller", 0x03_0000),
    ("3D controller", DISPLAY_3D),
    ("Display controller", DISPLAY_OTHER),
    ("Processing accelerators", 0x12_0000),
    ("Ethernet controller", ETHERNET),
    ("Infiniband controller", 0x02_0700),
    ("InfiniBand controller", 0x02_0700),
    ("Network controller", 0x02_8000),
    ("Non-Volatile memory controller", 0x01_0802),
    ("PCI bridge", PCI_BRIDGE),
    ("Host bridge", HOST_BRIDGE),
    ("Bridge", NVSWITCH),
    ("Audio device", 0x04_0300),
];

const HOST_BRIDGE: u32 = 0x06_0000;

/// The beginnings of vendors' names, with their IDs (PCI ID database).
const VENDORS: [(&str, u16); 17] = [
    ("NVIDIA", 0x10de),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002),
    ("Advanced Micro Devices", 0x1022),
    ("Intel", 0x8086),
    ("Mellanox", 0x15b3),
    ("mlx5", 0x15b3),
    ("Broadcom / LSI", 0x1000),
    ("LSI Logic", 0x1000),
    ("Broadcom", 0x14e4),
    ("PMC-Sierra", 0x11f8),
    ("Microsemi", 0x11f8),
    ("Amazon", 0x1d0f),
    ("Google", 0x1ae0),
    ("Red Hat", 0x1b36),
    ("Habana", 0x1da3),
    ("Samsung", 0x144d),
    ("Microsoft", 0x1414),
];

/// Words in the names of devices whose class a tree does not show.
const NICS: [&str; 10] = [
    "ConnectX",
    "BlueField",
    "MT2",
    "Ethernet",
    "Elastic Fabric Adapter",
    "(EFA)",
    "Elastic Network Adapter",
    "mlx5",
    "Network",
    "NetXtreme",
];
const NOT_NICS: [&str; 4] = ["Bridge", "Upstream", "Downstream", "DMA"];
const NOT_GPUS: [&str; 7] = ["Audio", "USB", "NVSwitch", "Bridge", "Switch", "UCSI", "Grace"];

pub(super) fn read(lines: &[&str]) -> Result<BTreeMap<PciAddress, Details>, PostedError> {
    let mut all = BTreeMap::new();
    let mut current: Option<PciAddress> = None;
    let mut is_after_blank = false;
    for (line, text) in unwrapped(lines, is_own) {
        let is_indented = text.starts_with([' ', '\t']);
        // Where only some headings are indented, the others would get what is said about these.
        if is_indented && heading(text.trim_start()).is_some() {
            return Err(wrong(line, &text));
        }
        if let Some((path, rest)) = heading(&text) {
            let Some((address, bridges)) = path.split_last() else {
                return Err(PostedError::NoBuses { line, text });
            };
            let details = Details::new(rest).ok_or_else(|| wrong(line, &text))?;
            current = Some(*address);
            let path = bridges.to_vec();
            all.entry(*address).or_insert_with(|| Details { path, ..details });
        } else if text.is_empty() {
            // A tracker or a terminal can put blank lines after each.
        } else if is_other(&text) || is_after_blank && !is_indented && !is_own(&text) {
            current = None;
        } else if let Some(details) = current.and_then(|address| all.get_mut(&address)) {
            let is_whole = is_indented && details.add(text.trim()).is_some();
            if !is_whole {
                return Err(wrong(line, &text));
            }
        }
        is_after_blank = text.is_empty();
    }
    Ok(all)
}

/// The error about a line that `lspci` does not write.
fn wrong(line: usize, text: &str) -> PostedError {
    PostedError::Details { line, text: text.trim().to_owned() }
}

/// What a line about a function begins with, as far as it is read.
const KEYS: [&str; 10] = [
    "Flags",
    "NUMA node",
    "IOMMU group",
    "Kernel driver in use",
    "Capabilities",
    "LnkCap",
    "LnkSta",
    "Bus",
    "ACSCtl",
    "ATSCtl",
];

/// Returns true if another line begins in a text.
fn has_key(text: &str) -> bool {
    KEYS.iter().any(|key| text.contains(&format!(" {key}: ")))
}

/// Returns true if a line begins as one of a description. The rest of a line can begin with one space.
fn is_own(line: &str) -> bool {
    let key = line.trim_start().split(':').next().unwrap_or_default();
    let is_indented = line.starts_with('\t') || line.starts_with("  ");
    is_indented || KEYS.contains(&key) || heading(line).is_some()
}

/// Returns true for the lines that people have between listings: a fence, a prompt, a command, or a tree.
fn is_other(line: &str) -> bool {
    let is_indented = line.starts_with([' ', '\t']);
    let begins = ["```", "~~~"].iter().any(|fence| line.starts_with(fence));
    let has_prompt = ["$ ", "# "].iter().any(|prompt| line.contains(prompt));
    begins || is_drawn(line) || !is_indented && has_prompt
}

/// `0000:17:00.0 3D controller: …`, with or without the domain, or after the bridges above it (`-PP`):
/// `15:01.0/16:00.0/17:00.0 3D controller: …`. Without the buses of the path (`-P`), it is empty.
fn heading(line: &str) -> Option<(Vec<PciAddress>, &str)> {
    let (place, rest) = line.split_once(' ')?;
    let mut domain = "0000";
    let mut path: Vec<PciAddress> = Vec::new();
    for address in place.split('/') {
        let at = match address.matches(':').count() {
            0 if !path.is_empty() && is_slot(address) => return Some((Vec::new(), rest)),
            1 => format!("{domain}:{address}"),
            2 if path.is_empty() => {
                (domain, _) = address.split_once(':')?;
                address.to_owned()
            }
            _ => return None,
        };
        path.push(at.parse().ok()?);
    }
    Some((path, rest))
}

/// The types of functions that `lspci` writes after `Express (v2)`.
const EXPRESS: [&str; 9] = [
    "Endpoint",
    "Legacy Endpoint",
    "Root Port",
    "Upstream Port",
    "Downstream Port",
    "PCI-Express to PCI/PCI-X Bridge",
    "PCI/PCI-X to PCI-Express Bridge",
    "Root Complex",
    "Unknown type",
];

impl Details {
    /// `3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)`; `None` if it is cut, or several
    /// lines are in one.
    fn new(text: &str) -> Option<Self> {
        let has_address =
            text.split_whitespace().any(|word| heading(&format!("{word} ")).is_some());
        if has_address || has_key(text) {
            return None;
        }
        let (class, name) = text.split_once(": ")?;
        if !are_paired(text, '[', ']') || !are_paired(text, '(', ')') {
            return None;
        }
        let number = class.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let number = number.and_then(|(digits, _)| u32::from_str_radix(digits, 16).ok());
        let named = CLASSES.iter().find(|(known, _)| class.trim() == *known);
        let class = number.map(|number| number << 8).or_else(|| named.map(|(_, number)| *number));
        Some(Self { class, ids: ids(name), name: name.to_owned(), ..Self::default() })
    }

    /// Adds a line; `None` if it is cut, or several lines are in one.
    fn add(&mut self, line: &str) -> Option<()> {
        let Some((key, value)) = line.split_once(':') else { return Some(()) };
        if has_key(value) {
            return None;
        }
        let value = value.trim();
        match key {
            "NUMA node" => self.numa = Some(NumaNode(value.parse().ok()?)),
            "Flags" => self.add_flags(value)?,
            "IOMMU group" => self.iommu_group = Some(value.parse().ok()?),
            "Kernel driver in use" => self.driver = Some(value.to_owned()),
            "Capabilities" if let Some((_, kind)) = value.split_once("] Express ") => {
                let kind = kind.split_once(") ").map_or(kind, |(_, kind)| kind);
                let known = EXPRESS.iter().find(|known| kind.starts_with(*known))?;
                self.is_of_root_complex = ["Root Port", "Root Complex"].contains(known);
            }
            "LnkCap" => self.max_link = link(speed_and_width(value)?),
            "LnkSta" => self.current_link = link(speed_and_width(value)?),
            "Bus" => self.secondary = Some(secondary(value)?).filter(|bus| *bus > 0),
            "ACSCtl" => self.acs = Some(acs(value)?),
            "ATSCtl" => self.ats = Some(value.starts_with("Enable+")),
            _ => {}
        }
        Some(())
    }

    /// `bus master, fast devsel, latency 0, NUMA node 0, IOMMU group 3`, as `lspci -v` has it.
    fn add_flags(&mut self, flags: &str) -> Option<()> {
        for flag in flags.split(',').map(str::trim) {
            match flag.rsplit_once(' ') {
                Some(("NUMA node", node)) => self.numa = Some(NumaNode(node.parse().ok()?)),
                Some(("IOMMU group", group)) => self.iommu_group = Some(group.parse().ok()?),
                _ => {}
            }
        }
        Some(())
    }

    /// Returns true for what is only on a root bus.
    pub(super) fn is_on_root_bus(&self) -> bool {
        self.is_of_root_complex || self.class == Some(HOST_BRIDGE)
    }

    pub(super) fn apply(&self, function: &mut PciFunction) {
        by_name(&self.name, function);
        function.class = self.class.unwrap_or(function.class);
        if let Some((vendor, device)) = self.ids {
            (function.vendor, function.device) = (vendor, device);
        }
        function.numa_node = self.numa;
        function.iommu_group = self.iommu_group;
        function.driver.clone_from(&self.driver);
        function.max_link = self.max_link;
        function.current_link = self.current_link;
        function.acs = self.acs;
        function.ats_enabled = self.ats;
    }
}

fn are_paired(text: &str, open: char, close: char) -> bool {
    text.matches(open).count() == text.matches(close).count()
}

/// What the name of a device shows, for a function of which nothing else is known.
pub(super) fn by_name(name: &str, function: &mut PciFunction) {
    let Some((_, vendor)) = VENDORS.iter().find(|(known, _)| name.starts_with(known)) else {
        return;
    };
    function.vendor = *vendor;
    function.device = device(name).unwrap_or(function.device);
    function.class = match *vendor {
        _ if function.class != 0 => function.class,
        0x10de if has_any(name, &["NVSwitch"]) => NVSWITCH,
        0x10de if !has_any(name, &NOT_GPUS) => DISPLAY_3D,
        0x1002 if has_any(name, &["Instinct", "Aldebaran", "Aqua Vanjaram", "MI"]) => DISPLAY_OTHER,
        0x1da3 => 0x12_0000,
        _ if has_any(name, &["NVMe", "NVM Express"]) => 0x01_0802,
        _ if has_any(name, &NICS) && !has_any(name, &NOT_NICS) => ETHERNET,
        _ => 0,
    };
}

fn has_any(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.contains(word))
}

/// Returns true if the name is that of a virtual function.
pub(super) fn is_virtual(name: &str) -> bool {
    name.contains("Virtual Function") || name.ends_with(" VF")
}

/// `Device 2330`.
fn device(name: &str) -> Option<u16> {
    let (_, rest) = name.split_once("Device ")?;
    u16::from_str_radix(rest.split_whitespace().next()?, 16).ok()
}

/// The last `[10de:2330]`.
fn ids(name: &str) -> Option<(u16, u16)> {
    name.rsplit('[').find_map(|text| device_id(text.split(']').next()?))
}

/// `Port #0, Speed 32GT/s, Width x16, ASPM …` or `Speed 16GT/s (downgraded), Width x8`; `None` if the line is
/// cut.
fn speed_and_width(text: &str) -> Option<(&str, &str)> {
    Some((word_after(text, "Speed ")?, word_after(text, "Width x")?))
}

fn word_after<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(key)?;
    rest.split([',', ' ', '(']).next()
}

/// `None` if the link is unknown.
fn link((speed, width): (&str, &str)) -> Option<PcieLink> {
    PcieLink::parse(&format!("{} GT/s", speed.strip_suffix("GT/s")?), width)
}

/// `primary=16, secondary=17, subordinate=1a, …`.
fn secondary(text: &str) -> Option<u8> {
    let (_, rest) = text.split_once("secondary=")?;
    u8::from_str_radix(rest.split(',').next()?, 16).ok()
}

/// `SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-`, in the order of
/// the register's bits.
fn acs(text: &str) -> Option<AcsControl> {
    let words: Vec<&str> = text.split_whitespace().take(7).collect();
    let bits = words.iter().zip(0..);
    let bits = bits.fold(0, |all, (word, bit)| all | u16::from(word.ends_with('+')) << bit);
    (words.len() == 7 && words[6].starts_with("DirectTrans")).then_some(AcsControl(bits))
}
