//! The kernel's names and numbers of prepared RDMA devices now. They change within a boot when a
//! device is reset, its driver loaded again, or a device added: `uverbs2` can then be another
//! NIC's. So a device is found by its PCI address each time a container is made
//! (`Documentation/infiniband/user_verbs.rst`; `drivers/infiniband/core/uverbs_main.c`).

use crate::model::plan::{CharDevice, Plan, PlannedDevice, PlannedRdma};

use crate::prepare::inventory::char_device;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use topology_graph::scalable_function;

/// Directory of a class's devices below `sys`.
const CLASSES: &str = "class";
/// The classes of an RDMA device's character devices: for applications, and for management.
/// Network namespaces do not hide them.
const VERBS: &str = "infiniband_verbs";
const MANAGEMENT: &str = "infiniband_mad";
/// Kinds of character devices, in the order of a plan.
const KINDS: [&str; 3] = ["uverbs", "umad", "issm"];

/// The RDMA devices of a machine.
#[derive(Clone, Debug)]
pub struct RdmaDevices {
    sys: PathBuf,
    dev: PathBuf,
}

/// A plan compared with the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Currency {
    /// Its names and numbers are right.
    Current,
    /// The same plan with the names and numbers of now, and a text for each difference.
    Changed(Box<Plan>, Vec<String>),
    /// These devices of it have no RDMA device now. Its numbers may be others' by now.
    Lost(Vec<String>),
}

/// An RDMA device as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Now {
    name: String,
    chars: Vec<CharDevice>,
}

impl RdmaDevices {
    /// The devices of the machine with these directories.
    pub fn new(sys: impl Into<PathBuf>, dev: &Path) -> Self {
        Self { sys: sys.into(), dev: dev.join("infiniband") }
    }

    /// Compares a plan with the machine.
    pub fn compare(&self, plan: &Plan) -> Currency {
        if !self.sys.join("bus/pci/devices").is_dir() {
            return Currency::Current;
        }
        let all = self.all();
        let mut now = plan.clone();
        let (mut changes, mut lost) = (Vec::new(), Vec::new());
        for device in &mut now.devices {
            match renew(device, &all) {
                Renewed::Same => {}
                Renewed::Changed(change) => changes.push(change),
                Renewed::Lost => lost.push(device.device.clone()),
            }
        }
        if !lost.is_empty() {
            return Currency::Lost(lost);
        }
        for device in now.wiring.beside.iter_mut().flat_map(|claim| &mut claim.devices) {
            // The other claim itself reports it.
            renew(device, &all);
        }
        if let Some(char) = now.rdma_cm.as_ref().and_then(|char| char_device(&self.dev, &char.name))
        {
            now.rdma_cm = Some(char);
        }
        rename_in_wiring(&mut now);
        if now == *plan { Currency::Current } else { Currency::Changed(Box::new(now), changes) }
    }

    /// All devices with the PCI addresses of their paths.
    fn all(&self) -> Vec<(PathBuf, Now)> {
        let mut all: BTreeMap<PathBuf, Now> = BTreeMap::new();
        for class in [VERBS, MANAGEMENT] {
            let folder = self.sys.join(CLASSES).join(class);
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Ok(owner) = fs::read_to_string(entry.path().join("ibdev")) else { continue };
                // `…/0101:00:00.0/infiniband_verbs/uverbs0`
                let path = entry.path().canonicalize().unwrap_or_default();
                let Some(parent) = path.ancestors().nth(2) else { continue };
                let now = all.entry(parent.join(owner.trim())).or_default();
                owner.trim().clone_into(&mut now.name);
                now.chars.extend(char_device(&self.dev, &name));
            }
        }
        for now in all.values_mut() {
            now.chars.sort_by_key(|char| {
                let kind = KINDS.iter().position(|kind| char.name.starts_with(kind));
                (kind, char.name.len(), char.name.clone())
            });
        }
        all.into_iter().collect()
    }
}

enum Renewed {
    Same,
    Changed(String),
    Lost,
}

/// Gives a planned device the names and numbers of now.
fn renew(device: &mut PlannedDevice, all: &[(PathBuf, Now)]) -> Renewed {
    let Some(planned) = &device.rdma else { return Renewed::Same };
    // A plan without character devices names nothing that could be another's.
    if planned.chars.is_empty() {
        return Renewed::Same;
    }
    let Some(now) = find(&device.pci_bus_id, planned, all) else { return Renewed::Lost };
    let given = now.chars.iter().filter(|char| {
        let kind = KINDS.iter().find(|kind| char.name.starts_with(**kind));
        planned.chars.iter().any(|given| kind.is_some_and(|kind| given.name.starts_with(kind)))
    });
    let chars: Vec<_> = given.cloned().collect();
    if chars.is_empty() {
        return Renewed::Lost;
    }
    let renewed = PlannedRdma { name: now.name.clone(), chars, ..planned.clone() };
    if renewed == *planned {
        return Renewed::Same;
    }
    let change =
        format!("device `{}` was {}, and is {}", device.device, text(planned), text(&renewed));
    device.rdma = Some(renewed);
    Renewed::Changed(change)
}

/// The device below this PCI function or below its planned part: of several, the one with the planned name. A
/// soft device is below none, and has the name that an administrator gave it
/// (`drivers/infiniband/sw`).
fn find<'n>(address: &str, planned: &PlannedRdma, all: &'n [(PathBuf, Now)]) -> Option<&'n Now> {
    let part = planned.part.as_deref();
    below(address, part, all)
        .find(|now| now.name == planned.name)
        .or_else(|| below(address, part, all).next())
        .or_else(|| below("virtual", part, all).find(|now| now.name == planned.name))
}

/// Those with this directory in their paths, of this scalable function or of none.
fn below<'n>(
    place: &str,
    part: Option<&str>,
    all: &'n [(PathBuf, Now)],
) -> impl Iterator<Item = &'n Now> {
    let found = all.iter().filter(move |(path, _)| {
        let is_there = path.iter().any(|it| it == place);
        is_there && path.to_str().and_then(scalable_function) == part
    });
    found.map(|(_, now)| now)
}

fn text(rdma: &PlannedRdma) -> String {
    let chars: Vec<_> = rdma
        .chars
        .iter()
        .map(|char| format!("{} ({}:{})", char.name, char.major, char.minor))
        .collect();
    format!("`{}` with {}", rdma.name, chars.join(", "))
}

/// Uses the new names where a plan says which NIC is near which GPU.
fn rename_in_wiring(plan: &mut Plan) {
    let told: BTreeMap<String, String> = plan
        .told()
        .into_iter()
        .filter_map(|(_, device)| Some((device.device.clone(), device.rdma.as_ref()?.name.clone())))
        .collect();
    for nic in plan.wiring.gpus.iter_mut().flat_map(|gpu| &mut gpu.nics) {
        if nic.rdma_device.is_some() {
            nic.rdma_device = told.get(&nic.device).cloned().or_else(|| nic.rdma_device.take());
        }
    }
}

#[cfg(test)]
mod tests;
