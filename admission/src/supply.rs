//! Denials that say what the cluster lacks.

mod nothing;
mod unfit;

use crate::claim::CLAIM_PARTS_MAX;
use crate::denial::Denial;
use crate::fleet::Fleet;
use crate::intent::{AlignmentPolicy, Intent, Pairing};
use crate::nearness::Nearness;
use crate::wording::count;
use cluster_model::machines::{Machine, Selection};
use cluster_model::names::{annotation, attribute};
pub(crate) use nothing::{nothing, without_rdma};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use topology_graph::{Cell, NicRole};
pub(crate) use unfit::{Unfit, unfit};

/// The most kinds of machines that a denial lists.
const KINDS_SHOWN: usize = 4;

/// `1 GPU + 2 NICs`, `2 NICs`.
fn asked(intent: &Intent) -> String {
    let nics = count(intent.nics as usize, "NIC");
    match intent.gpus {
        0 => nics,
        gpus => format!("{} + {nics}", count(gpus as usize, "GPU")),
    }
}

/// The profile, if the pod asks for parts of GPUs by one.
fn with_profile(selection: &Selection<'_>) -> String {
    let profile = selection.gpu_profile.map(|profile| format!(" with profile `{profile}`"));
    profile.unwrap_or_default()
}

/// `storage `, if the pod asks for such NICs.
pub(crate) fn role_words(role: NicRole) -> String {
    if role == NicRole::Compute { String::new() } else { format!("{role} ") }
}

/// Why no machine shape can serve, with the largest existing cells.
pub(crate) fn shortage(fleet: Fleet<'_, '_>) -> Denial {
    let Fleet { intent, machines, .. } = fleet;
    let weakest = Nearness::weakest(machines);
    let level = intent.level.map_or(weakest, Nearness::Level);
    if intent.policy == AlignmentPolicy::Preferred {
        return intent.deny(total_shortage(fleet));
    }
    if let Some(asked) = intent.level
        && Nearness::Level(asked) != weakest
        && fleet.any_fits(weakest)
    {
        let possible = Nearness::levels(machines).filter(|level| *level > Nearness::Level(asked));
        let possible = possible.filter(|level| fleet.any_fits(*level));
        let possible: Vec<_> = possible.map(|level| format!("\"{level}\"")).collect();
        let limit = limit(fleet, level);
        return Denial::new(annotation::ALIGNMENT, asked.to_string(), limit)
            .allowed(possible.join(" or "));
    }
    intent.deny(limit(fleet, level))
}

fn limit(fleet: Fleet<'_, '_>, level: Nearness) -> String {
    let (intent, demand) = (fleet.intent, fleet.demand());
    let place = level.place();
    let (gpus, nics) = (demand.gpus as usize, demand.nics as usize);
    let asked = match intent.pairing {
        Pairing::Group => {
            format!("asks for {} on one {place} with {}", count(nics, "NIC"), count(gpus, "GPU"))
        }
        Pairing::Shared => format!(
            "asks for {} on one {place} with each {}",
            count(nics, "NIC"),
            count(gpus, "GPU")
        ),
        Pairing::Each => format!(
            "asks for {} with {} each on its {place}",
            count(intent.gpus as usize, "GPU"),
            count(nics, "NIC")
        ),
    };
    let kinds = kinds(fleet.machines, level);
    let cells = kinds.iter().flat_map(|kind| &kind.cells);
    let large = cells.clone().filter(|cell| cell.gpus.len() >= gpus);
    let most_nics = large.map(Cell::ports).max();
    let most_gpus = cells.map(|cell| cell.gpus.len()).max().unwrap_or_default();
    let most = fleet.machines.iter().map(|machine| {
        level.cells(machine).iter().map(|cell| fleet.demand().capacity(cell)).sum::<usize>()
    });
    let limit = match most_nics {
        Some(most) if most < nics => format!("no machine in this cluster has more than {most}"),
        None if most_gpus == 0 => format!("no {place} in this cluster has both GPUs and NICs"),
        None => format!("no {place} in this cluster has more than {}", count(most_gpus, "GPU")),
        Some(_) => match most.max() {
            Some(most) if most < fleet.demand().blocks as usize => match most {
                0 => "no machine in this cluster has room for that".to_owned(),
                most => {
                    format!("no machine in this cluster has room for more than {most} of them")
                }
            },
            _ => no_join(fleet),
        },
    };
    format!("{asked}; {limit} ({}){}", describe(&kinds), on_the_host(intent))
}

/// Says which NICs a pod on the host's network cannot use.
fn on_the_host(intent: &Intent) -> &'static str {
    if intent.host_network {
        "; the pod shares the host's network (hostNetwork), from which no interface can be \
         moved, so only NICs without an interface count"
    } else {
        ""
    }
}

/// Why a claim cannot express what the topology knows.
fn no_join(fleet: Fleet<'_, '_>) -> String {
    let driver = fleet.driver();
    match driver.kind_attribute {
        Some(kind)
            if fleet.machines.iter().all(|machine| {
                let mut nics = machine.devices.nics.values();
                driver
                    .kind_attribute
                    .is_some_and(|kind| nics.any(|nic| nic.attribute(kind).is_none()))
            }) =>
        {
            format!(
                "the devices exist, but GPUs and NICs publish no common attribute, and the NICs do \
             not publish {kind}, which tells them apart; run dranet's node-driver, which \
             publishes it, instead of the driver that publishes these NICs{}",
                or_labels(fleet)
            )
        }
        _ => "no published attribute lets a claim express this".to_owned(),
    }
}

/// The other remedy for NICs with bus IDs, on nodes whose type of machine no label names.
fn or_labels(fleet: Fleet<'_, '_>) -> &'static str {
    let driver = fleet.terms.nic_class.driver();
    let mut pinnable = fleet
        .machines
        .iter()
        .filter(|machine| machine.type_label.is_none() && machine.nics_have(attribute::PCI_BUS_ID));
    if driver.is_ours() || pinnable.next().is_none() {
        return "";
    }
    "; or run fabric-controller, which labels nodes with the type of their machine"
}

/// Why not even far devices are enough.
fn total_shortage(fleet: Fleet<'_, '_>) -> String {
    let Fleet { intent, machines, .. } = fleet;
    let gpus = machines.iter().map(|machine| machine.devices.gpus.len()).max();
    let nics = machines.iter().map(|machine| machine.devices.nics.len()).max();
    let asked = asked(fleet.intent);
    format!(
        "asks for {asked}; no node in this cluster has more than {} + {} with RDMA{}",
        count(gpus.unwrap_or_default(), "GPU"),
        count(nics.unwrap_or_default(), "NIC"),
        on_the_host(intent)
    )
}

/// Denies a claim whose search takes too long.
pub(crate) fn too_costly(fleet: Fleet<'_, '_>, budget: u64) -> Denial {
    fleet.intent.deny(format!(
        "every claim for {} would take the scheduler more than {budget} search steps on one \
         half-busy node; {}",
        asked(fleet.intent),
        smaller(fleet)
    ))
}

/// Denies a demand for which a claim has not enough room.
pub(crate) fn too_many_parts(fleet: Fleet<'_, '_>) -> Denial {
    fleet.intent.deny(format!(
        "every claim for {} would need more than {CLAIM_PARTS_MAX} requests or constraints, which \
         is the most that a claim can hold; {}",
        asked(fleet.intent),
        smaller(fleet)
    ))
}

/// Suggests a smaller demand.
fn smaller(fleet: Fleet<'_, '_>) -> String {
    match fleet.intent.pairing {
        Pairing::Each => format!(
            "{} for each of {} is the part that is too large; ask for the whole node, for fewer \
             GPUs, or set {}: \"group\"",
            count(fleet.demand().nics as usize, "NIC"),
            count(fleet.intent.gpus as usize, "GPU"),
            annotation::PAIRING
        ),
        Pairing::Group | Pairing::Shared => "ask for fewer devices".to_owned(),
    }
}

/// Machines of one name whose cells have the same numbers of devices.
struct MachineKind {
    /// The name of their type, otherwise their shape.
    name: String,
    /// The present nodes; 0 if such machines are only remembered.
    nodes: usize,
    cells: Vec<Cell>,
}

fn kinds(machines: &[Machine<'_>], level: Nearness) -> Vec<MachineKind> {
    let mut kinds: BTreeMap<(String, String), MachineKind> = BTreeMap::new();
    for machine in machines {
        let Some(shape) = machine.shapes.first() else { continue };
        let name = machine.type_name.clone().unwrap_or_else(|| format!("shape {shape}"));
        let cells = level.cells(machine);
        let key = (name.clone(), describe_cells(&cells));
        kinds.entry(key).or_insert(MachineKind { name, nodes: 0, cells }).nodes +=
            machine.live_nodes();
    }
    let mut kinds: Vec<MachineKind> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| Reverse(kind.nodes));
    kinds
}

/// The kinds of present nodes; remembered machines take one line.
fn describe(kinds: &[MachineKind]) -> String {
    let (present, remembered): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| kind.nodes > 0);
    let mut texts: Vec<_> = present.iter().take(KINDS_SHOWN).map(ToString::to_string).collect();
    if present.len() > KINDS_SHOWN {
        texts.push(format!("and {} more kinds of nodes", present.len() - KINDS_SHOWN));
    }
    match remembered.as_slice() {
        [] => {}
        [only] => texts.push(only.to_string()),
        [first, ..] if present.is_empty() => {
            texts.push(format!("{first}; and {} more", remembered.len() - 1));
        }
        several => texts.push(format!("{} remembered machines", several.len())),
    }
    texts.join("; ")
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = match self.nodes {
            0 => "a remembered machine".to_owned(),
            nodes => count(nodes, "node"),
        };
        write!(f, "{nodes} of {}: {}", self.name, describe_cells(&self.cells))
    }
}

/// `numa0 has 2 GPUs and 2 NICs, numa1 has 2 GPUs and 2 NICs`.
fn describe_cells(cells: &[Cell]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| {
            let (gpus, nics) = (count(cell.gpus.len(), "GPU"), count(cell.nics.len(), "NIC"));
            let ports = match cell.ports() {
                ports if ports < cell.nics.len() => format!(" on {}", count(ports, "port")),
                _ => String::new(),
            };
            format!("{} has {gpus} and {nics}{ports}", cell.key)
        })
        .collect();
    if cells.is_empty() { "none".to_owned() } else { cells.join(", ") }
}
