//! What NCCL and RCCL make of a machine: the rules of `src/graph/xml.cc`, `topo.cc` and `paths.cc` of NCCL
//! 2.30.7 and RCCL 2.21.5, for PCIe. On a tree there is one path between two devices, so both choose it.
//! NVLink and XGMI are left out, since a file without them has those that the programs find.
//!
//! A bridge of a fixture without `numa_node` has that of its device, as in the kernel.

use std::collections::BTreeMap;

use super::tree::Tree;

/// The program that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Nccl,
    Rccl,
}

/// The type of a path, in the order of `PATH_*`, and its bandwidth over PCIe in megabytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) kind: Kind,
    pub(crate) bandwidth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pix,
    Pxb,
    Phb,
    Sys,
}

/// The fallback of `kvDictPciGen`, in units of 100 Mb/s per lane.
const DEFAULT_SPEED: u64 = 60;

/// `kvDictPciGen`.
const SPEEDS: [(&str, u64); 11] = [
    ("2.5 GT/s", 15),
    ("5 GT/s", 30),
    ("8 GT/s", 60),
    ("16 GT/s", 120),
    ("32 GT/s", 240),
    ("2.5 GT/s PCIe", 15),
    ("5.0 GT/s PCIe", 30),
    ("8.0 GT/s PCIe", 60),
    ("16.0 GT/s PCIe", 120),
    ("32.0 GT/s PCIe", 240),
    ("64.0 GT/s PCIe", 480),
];

/// A `<pci>` element.
#[derive(Clone, Debug, Default)]
struct Pci {
    parent: Option<Parent>,
    class: String,
    id: [Option<u64>; 4],
    speed: Option<String>,
    width: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Parent {
    Pci(String),
    Cpu(String),
}

/// The XML of one process, by bus ID.
pub(crate) struct Machine<'t> {
    program: Program,
    tree: &'t Tree,
    pci: BTreeMap<String, Pci>,
}

impl<'t> Machine<'t> {
    /// What the program finds for these devices, with a topology file or without.
    pub(crate) fn found(
        program: Program,
        tree: &'t Tree,
        file: Option<&str>,
        devices: &[String],
    ) -> Self {
        let mut machine = Self { program, tree, pci: BTreeMap::new() };
        if let Some(text) = file {
            machine.load(text);
        }
        for device in devices {
            machine.pci.entry(device.clone()).or_default();
            machine.complete(device);
        }
        machine.flatten(devices);
        machine
    }

    /// `ncclTopoGetXmlFromFile`.
    fn load(&mut self, text: &str) {
        let document = roxmltree::Document::parse(text).unwrap();
        let version = if self.program == Program::Nccl { "1" } else { "2" };
        assert_eq!(document.root_element().attribute("version"), Some(version));
        for cpu in document.root_element().children().filter(|node| node.has_tag_name("cpu")) {
            let parent = Parent::Cpu(cpu.attribute("numaid").unwrap().to_owned());
            for pci in cpu.children().filter(|node| node.has_tag_name("pci")) {
                self.load_pci(pci, parent.clone());
            }
        }
    }

    fn load_pci(&mut self, node: roxmltree::Node<'_, '_>, parent: Parent) {
        let text = |name: &str| node.attribute(name).map(str::to_owned);
        let number = |name: &str| {
            u64::from_str_radix(node.attribute(name)?.trim_start_matches("0x"), 16).ok()
        };
        let at = text("busid").unwrap();
        let element = Pci {
            parent: Some(parent),
            class: text("class").unwrap_or_default(),
            id: ["vendor", "device", "subsystem_vendor", "subsystem_device"].map(number),
            speed: text("link_speed"),
            width: text("link_width"),
        };
        // `xmlFindTagKv` takes the first.
        self.pci.entry(at.clone()).or_insert(element);
        for child in node.children().filter(|node| node.has_tag_name("pci")) {
            self.load_pci(child, Parent::Pci(at.clone()));
        }
    }

    /// `ncclTopoGetXmlFromSys`: attributes that are missing, then the parent.
    fn complete(&mut self, at: &str) {
        let mut element = self.pci[at].clone();
        let (speed, width) = self.link(at);
        element.speed.get_or_insert(speed);
        element.width.get_or_insert(width);
        if let Some(function) = self.tree.get(at) {
            element.class.clone_from(&function.class);
            for (known, shown) in element.id.iter_mut().zip(function.id) {
                known.get_or_insert(shown);
            }
        }
        let parent = element.parent.get_or_insert_with(|| self.parent(at)).clone();
        self.pci.insert(at.to_owned(), element);
        if let Parent::Pci(above) = parent {
            self.pci.entry(above.clone()).or_default();
            self.complete(&above);
        }
    }

    /// The slower and the narrower end, as each program reads it.
    fn link(&self, at: &str) -> (String, String) {
        let Some(function) = self.tree.get(at) else { return (String::new(), String::new()) };
        let port = function.above.last().and_then(|port| self.tree.get(port));
        let (port_speed, port_width) =
            port.map_or(("", ""), |port| (port.speed.as_str(), port.width.as_str()));
        let number = |text: &str| text.split(' ').next()?.parse::<f32>().ok();
        let (own, other) = (number(&function.speed), number(port_speed));
        let is_port_slower =
            other.unwrap_or(f32::MAX) < own.unwrap_or(f32::MAX) && !port_speed.is_empty();
        let speed = if is_port_slower { port_speed } else { &function.speed };
        let lanes = |text: &str| text.parse::<u64>().unwrap_or_default();
        let port_lanes = match self.program {
            Program::Rccl if port_width.is_empty() => lanes(&function.width),
            _ => lanes(port_width),
        };
        (speed.to_owned(), lanes(&function.width).min(port_lanes).to_string())
    }

    /// Every second bridge, until the root complex. Only names of 12 characters are bridges
    /// (`checkBDFFormat`).
    fn parent(&self, at: &str) -> Parent {
        let Some(function) = self.tree.get(at) else { return Parent::Cpu("-1".to_owned()) };
        match function.above.as_slice() {
            [.., second, first] if first.len() == 12 && second.len() == 12 => {
                Parent::Pci(second.clone())
            }
            _ => Parent::Cpu(self.numa(at)),
        }
    }

    fn numa(&self, at: &str) -> String {
        let own = |at: &str| self.tree.get(at).map(|it| it.numa.clone()).unwrap_or_default();
        let below = self.tree.iter().filter(|(_, it)| it.above.iter().any(|above| above == at));
        let below = below.map(|(_, it)| it.numa.clone()).find(|numa| !numa.is_empty());
        let numa = Some(own(at)).filter(|numa| !numa.is_empty()).or(below).unwrap_or_default();
        match self.program {
            Program::Rccl if numa == "-1" => "0".to_owned(),
            _ => numa,
        }
    }

    /// `ncclTopoFlattenBcmSwitches`: the parts of one PEX switch are one switch.
    fn flatten(&mut self, devices: &[String]) {
        while let Some((switch, generation)) = self.pex_switch(devices) {
            let parts = self.pci.iter().filter(|(at, pci)| {
                pci.parent == Some(Parent::Pci(switch.clone()))
                    && !devices.contains(at)
                    && self.generation(at, 1) == generation
            });
            let parts: Vec<String> = parts.map(|(at, _)| at.clone()).collect();
            for part in parts {
                self.pci.remove(&part);
                for pci in self.pci.values_mut() {
                    if pci.parent == Some(Parent::Pci(part.clone())) {
                        pci.parent = Some(Parent::Pci(switch.clone()));
                    }
                }
            }
            // It is not merged again.
            self.pci.get_mut(&switch).unwrap().id[3] = Some(0xffff);
        }
    }

    fn pex_switch(&self, devices: &[String]) -> Option<(String, u8)> {
        self.pci.keys().filter(|at| !devices.contains(at)).find_map(|at| {
            let generation = self.generation(at, 0);
            (generation > 0).then(|| (at.clone(), generation))
        })
    }

    /// `getBcmGen`.
    fn generation(&self, at: &str, level: u64) -> u8 {
        let [a, b, c, d] = self.pci[at].id.map(Option::unwrap_or_default);
        match (a << 48 | b << 32 | c << 16 | d) & !0xfff {
            0x1000_c010_1000_a000 => 4,
            id if id == 0x1000_c030_1000_0000 | level << 12 => 5,
            _ => 0,
        }
    }

    /// `ncclTopoSetPaths`.
    pub(crate) fn path(&self, a: &str, b: &str) -> Path {
        let (up, down) = (self.way(a), self.way(b));
        let shared = up.iter().find(|(at, _)| down.iter().any(|(other, _)| other == at));
        let before = |way: &[(Parent, u64)]| -> (usize, u64) {
            let top = shared.map(|(at, _)| at);
            let end = way.iter().position(|(at, _)| Some(at) == top).unwrap_or(way.len() - 1);
            (end, way[..=end].iter().map(|(_, link)| *link).min().unwrap())
        };
        let ((up_length, up_link), (down_length, down_link)) = (before(&up), before(&down));
        let kind = match shared {
            None => Kind::Sys,
            Some((Parent::Cpu(_), _)) => Kind::Phb,
            Some((Parent::Pci(_), _)) if up_length + down_length > 0 => Kind::Pxb,
            Some((Parent::Pci(_), _)) => Kind::Pix,
        };
        Path { kind, bandwidth: up_link.min(down_link) }
    }

    /// What is above a device, nearest first, with the link to it.
    fn way(&self, device: &str) -> Vec<(Parent, u64)> {
        let mut way = Vec::new();
        let mut at = device.to_owned();
        loop {
            let element = &self.pci[&at];
            let parent = element.parent.clone().unwrap();
            way.push((parent.clone(), bandwidth(element)));
            match parent {
                Parent::Pci(above) => at = above,
                Parent::Cpu(_) => return way,
            }
        }
    }
}

/// Lanes times speed; lanes that are unknown are 16.
fn bandwidth(element: &Pci) -> u64 {
    let width = element.width.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let width: u64 = if width == 0 { 16 } else { width };
    let text = element.speed.as_deref().unwrap_or_default();
    let known = SPEEDS.iter().find(|(name, _)| text.starts_with(name));
    width * known.map_or(DEFAULT_SPEED, |(_, speed)| *speed) * 1_000 / 80
}
