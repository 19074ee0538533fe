//! Claims for pods without GPUs: NICs near each other, near CPUs or NVMe devices if these are asked
//! for, of the role asked for.
//!
//! One constraint is enough: NICs publish what they have in common. Nothing has to be kept apart.

use super::among::Among;
use super::found::Found;
use super::selection::Selected;
use super::{Policy, nic_checks, selection};
use crate::denial::Denial;
use crate::fleet::{CommonAttribute, Fleet, GpuSource};
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, Form, Way};
use crate::join::{Candidate, UNALIGNED};
use crate::nearness::Nearness;
use crate::promise::{Promise, Promises};
use crate::supply::{role_words, without_rdma};
use crate::wishes::SameRail;
use crate::wording::{count, nodes};
use cluster_model::gpu_drivers;
use cluster_model::machines::{Machine, NicSelection, machines};
use cluster_model::names::{annotation, attribute};
use cluster_model::node_devices::NodeDevices;
use cluster_model::plugin_machines::places;
use dra_allocator::AttributeValue;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Level, NicRole, PciAddress};

/// The machines with NICs as the pod asks for.
pub(super) fn find<'m>(
    intent: &Intent,
    among: &Among<'m>,
    policy: &Policy,
) -> Result<Found<'m>, Denial> {
    let view = among.view;
    let gpu_source = GpuSource::Nowhere(common(intent)?);
    let (nic_driver, nic_class) = selection::nics(intent, among, policy)?;
    nic_checks::check_driver(intent, nic_driver)?;
    let selected = Selected { driver: gpu_drivers::NONE, gpu_class: None, nic_driver, nic_class };
    let selection = selection::devices(intent, &selected, view);
    let found = machines(view, &selection, |node| among.allows(node));
    let (machines, remembered) = among.split(found);
    if machines.is_empty() {
        return Err(nothing(intent, &selection.nics, among));
    }
    Ok(Found { intent: intent.clone(), selected, gpu_source, machines, remembered })
}

/// The claim: NICs that have the attribute in common, or any. A single NIC has nothing to be near to.
pub(super) fn propose<'m>(fleet: Fleet<'_, 'm>, common: CommonAttribute) -> Candidate<'m> {
    let nics = fleet.intent.nics;
    let is_preferred = fleet.intent.policy == AlignmentPolicy::Preferred;
    let nearness = Nearness::Level(common.level);
    let promises = Promises::of_each(fleet.machines, |machine| {
        let near = (most_near(machine, common) >= nics).then_some(nearness);
        Promise::best(near, is_preferred && fleet.has_enough(machine))
    });
    let way = Way::by(common.join, common.name);
    let ways = match fleet.intent.policy {
        AlignmentPolicy::Preferred => vec![way, Way::Any],
        AlignmentPolicy::Required if nics == 1 => vec![Way::Any],
        AlignmentPolicy::Required => vec![way],
    };
    let why = format!("NICs publish {}, so one constraint keeps them together", common.name);
    let join = if promises.are_near() { common.join } else { UNALIGNED };
    let form = Form::new(ways, Apart::Kind);
    Candidate { nearness, ..Candidate::new(fleet, (join, why), form, promises) }
}

/// The level that the pod asks for, and the attribute by which NICs of a cell know each other.
pub(super) fn common(intent: &Intent) -> Result<CommonAttribute, Denial> {
    if intent.wishes.rail.is_some() {
        return Err(SameRail::deny(
            "a rail is that of the NIC next to a GPU, and the pod has no GPU",
        ));
    }
    let level = intent.level.unwrap_or(Level::Numa);
    let (join, name) = match level {
        Level::Switch => ("switch", attribute::PCIE_SWITCH),
        Level::Root => ("root", attribute::PCIE_ROOT),
        Level::Numa => ("numa", attribute::NUMA_NODE),
        Level::RootPort | Level::Socket => {
            let why = "no attribute of NICs says it, and the pod has no GPU";
            let denial = Denial::new(annotation::ALIGNMENT, level.to_string(), why);
            return Err(denial.allowed("\"switch\", \"root\" or \"numa\""));
        }
    };
    Ok(CommonAttribute { join, name, level })
}

/// The most NICs of a machine with one value of the attribute.
pub(super) fn most_near(machine: &Machine<'_>, common: CommonAttribute) -> u32 {
    let mut cells: BTreeMap<&AttributeValue, BTreeSet<PciAddress>> = BTreeMap::new();
    for (address, nic) in &machine.devices.nics {
        if let Some(value) = nic.attribute(common.name).filter(|value| !value.is_list()) {
            cells.entry(value).or_default().insert(machine.devices.topology.port_of(*address));
        }
    }
    let most = cells.values().map(BTreeSet::len).max().unwrap_or_default();
    // One NIC needs no attribute.
    u32::try_from(most).unwrap_or(u32::MAX).max(u32::from(!machine.devices.nics.is_empty()))
}

fn nothing(intent: &Intent, selection: &NicSelection<'_>, among: &Among<'_>) -> Denial {
    let (view, placement) = (among.view, among.placement());
    let late = placement.nodes(view).filter(|node| places(view, node).next().is_some());
    let late: Vec<String> = late.map(str::to_owned).collect();
    if intent.nic_role == NicRole::Compute && !late.is_empty() {
        return intent.deny(format!(
            "the NICs of {} are bound late: the driver chooses those near the GPUs that a device \
             plugin gives a pod, and this pod has no GPU; it needs a node whose NICs are bound by name",
            nodes(&late)
        ));
    }
    let nodes = placement.nodes(view).filter_map(|node| NodeDevices::new(view, node));
    let nodes: Vec<_> = nodes.collect();
    let others = without_rdma(&nodes, selection.nic_driver, intent);
    intent.deny(format!(
        "no node that the pod can run on has a NodeTopology and {}RDMA NICs of driver {} in class \
         `{}`{}",
        role_words(intent.nic_role),
        selection.nic_driver.driver,
        selection.nic_class.name,
        others.unwrap_or_default()
    ))
}

/// Why no machine can serve, with the most NICs that are near each other.
pub(super) fn shortage(fleet: Fleet<'_, '_>, common: CommonAttribute) -> Denial {
    let place = Nearness::Level(common.level).place();
    let most = fleet.machines.iter().map(|machine| most_near(machine, common)).max();
    let all = fleet.machines.iter().map(Machine::ports).max();
    fleet.intent.deny(format!(
        "asks for {} on one {place}; no node in this cluster has more than {} there, and more than {} \
         in total",
        count(fleet.intent.nics as usize, "NIC"),
        most.unwrap_or_default(),
        all.unwrap_or_default()
    ))
}
