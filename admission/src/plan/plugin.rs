//! A claim for the NICs of a pod that gets its GPUs from a device plugin by its limit. The kubelet
//! chooses these GPUs after the scheduler has chosen the NICs, so NICs can be near GPUs only if the pod
//! takes all GPUs of its node. Then no constraint is needed: the graph of the node's type says which
//! NICs are near which GPU. With preferred alignment a pod that takes a part gets any NICs.

mod nics;

use super::among::Among;
use super::found::Found;
use super::selection::Selected;
use super::{Policy, late, nic_checks, selection};
use crate::denial::Denial;
use crate::fleet::{Fleet, GpuSource};
use crate::intent::{AlignmentPolicy, GpuResource, Intent};
use crate::join::{Candidate, FAR, UNALIGNED};
use crate::nearness::Nearness;
use crate::promise::Promises;
use crate::wishes::NicShare;
use crate::wording::count;
use cluster_model::machines::{Machine, NicSelection};
use cluster_model::names::annotation;
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::published;
use cluster_model::placement::Placement;
use cluster_model::plugin_machines::{
    PluginSelection, are_units_whole, has_whole_units, is_plugin_node, places, plugin_machines,
};
use cluster_model::view::ClusterView;
use dra_allocator::Class;
use nics::NicPlan;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::Level;

/// The name of the join.
const JOIN: &str = "plugin";

/// Why the claim is for NICs only.
const WHOLE: &str = "a device plugin offers the GPUs, and the pod takes all of its node's, so the claim \
                     is for NICs only and needs no constraint";
/// The same if the pod takes a part of each node.
const PART: &str = "a device plugin offers the GPUs, and the kubelet chooses them after the scheduler has \
                    chosen the NICs, so that no claim can bring these near them";

/// The resource in the pod's limits, if only a device plugin offers such GPUs where the pod can run. A
/// pod that names a DeviceClass of GPUs gets a claim for them.
pub(super) fn resource<'i>(
    intent: &'i Intent,
    placement: &Placement,
    view: &ClusterView,
) -> Option<&'i GpuResource> {
    let resource = intent.resource.as_ref().filter(|_| intent.gpu_class.is_none())?;
    let (remembered, present): (Vec<&str>, Vec<&str>) =
        placement.nodes(view).partition(|node| view.is_remembered(node));
    // Present nodes decide, so that remembered machines matter only while there are none.
    for nodes in [present, remembered] {
        let mut gpus = nodes.iter().flat_map(|node| published(view, node)).map(|(_, gpu)| gpu);
        if gpus.any(|gpu| *gpu.id().driver == *resource.driver.driver) {
            return None;
        }
        if nodes.iter().any(|node| is_plugin_node(view, node, &resource.name)) {
            return Some(resource);
        }
    }
    None
}

/// The machines all of whose GPUs the pod takes, or else those that bind NICs late.
pub(super) fn find<'m>(
    intent: &Intent,
    resource: &GpuResource,
    among: &Among<'m>,
    policy: &Policy,
) -> Result<Found<'m>, Denial> {
    check_beside(intent, resource)?;
    let (nic_driver, nic_class) = selection::nics(intent, among, policy)?;
    nic_checks::check_driver(intent, nic_driver)?;
    let nics = (nic_driver, &*nic_class);
    let (named, remembered) = match machines(intent, resource, nics, among) {
        Ok(found) => {
            let (named, remembered) = among.split(found);
            (Ok(named), remembered)
        }
        Err(denial) => (Err(denial), Vec::new()),
    };
    let late = if named.as_ref().is_ok_and(|named| takes_all(intent, named)) {
        Vec::new()
    } else {
        late::machines(intent, resource, nics, among)
    };
    let (late, late_remembered) = among.split(late);
    let driver = resource.driver;
    let selected = Selected { driver, gpu_class: None, nic_driver, nic_class };
    if !late.is_empty() {
        check_staying(intent, resource)?;
        let within = late::within(intent, &late);
        return Ok(Found {
            intent: late::spread(intent),
            selected,
            gpu_source: GpuSource::PluginLate(within),
            machines: late,
            remembered: late_remembered,
        });
    }
    let machines = named?;
    if machines.is_empty() {
        return Err(intent.deny("no present node can serve the pod"));
    }
    let (intent, gpu_source) = (intent.clone(), GpuSource::Plugin);
    Ok(Found { intent, selected, gpu_source, machines, remembered })
}

/// The claim: the NICs near the GPUs of each cell. If the pod takes every NIC, a number of them is enough
/// unless it `is_listed`.
pub(super) fn propose<'m>(fleet: Fleet<'_, 'm>, is_listed: bool) -> Candidate<'m> {
    let NicPlan { promises, form, demand } = NicPlan::new(fleet, is_listed);
    let is_whole = fleet.machines.iter().any(|machine| nics::is_whole(machine, fleet));
    let (why, far_because) =
        if is_whole { (WHOLE, FAR) } else { (PART, "the kubelet chooses the GPUs later") };
    let join = if promises.are_near() { JOIN } else { UNALIGNED };
    let nearness = nearness(fleet, &promises);
    let candidate = Candidate::new(fleet, (join, why.to_owned()), form, promises);
    Candidate { nearness, demand, far_because, ..candidate }
}

/// The nearness on most nodes; of equally many, the farthest.
fn nearness(fleet: Fleet<'_, '_>, promises: &Promises<'_>) -> Nearness {
    let mut nodes: BTreeMap<Nearness, usize> = BTreeMap::new();
    for machine in fleet.machines {
        if let Some(level) = promises.on(machine).nearness() {
            *nodes.entry(level).or_default() += machine.live_nodes();
        }
    }
    let most = nodes.into_iter().max_by_key(|(level, nodes)| (*nodes, *level));
    most.map_or(Nearness::Level(Level::Numa), |(level, _)| level)
}

/// Whether the pod takes all GPUs of the machine, and has NICs near them.
pub(super) fn has_near(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> bool {
    let mut levels = fleet.levels(machine).into_iter();
    nics::is_whole(machine, fleet) && levels.any(|level| fleet.demand().fits(&level.cells(machine)))
}

/// The machines all of whose GPUs the pod takes; for preferred alignment also those of which it takes a
/// part, since it promises any NICs.
fn machines<'v>(
    intent: &Intent,
    resource: &GpuResource,
    nics: (&'static NicDriver, &Class),
    among: &Among<'v>,
) -> Result<Vec<Machine<'v>>, Denial> {
    let view = among.view;
    let nics = selection::nic_devices(intent, nics);
    let selection = PluginSelection { gpu_driver: resource.driver, resource: &resource.name, nics };
    let mut machines = plugin_machines(view, &selection, |node| among.allows(node));
    if machines.is_empty() && nics.only_shared {
        let nics = NicSelection { only_shared: false, ..nics };
        let whole = PluginSelection { nics, ..selection };
        if !plugin_machines(view, &whole, |node| among.allows(node)).is_empty() {
            return Err(NicShare::deny_all());
        }
    }
    let sizes: BTreeSet<usize> =
        machines.iter().map(|machine| machine.devices.gpus.len()).collect();
    let is_preferred = intent.policy == AlignmentPolicy::Preferred;
    machines.retain(|machine| match machine.devices.gpus.len().cmp(&(intent.gpus as usize)) {
        Ordering::Less => false,
        Ordering::Equal => true,
        Ordering::Greater => is_preferred,
    });
    if machines.is_empty() {
        return Err(if sizes.is_empty() {
            no_machine(intent, resource, among)
        } else {
            not_whole(intent, resource, &sizes)
        });
    }
    Ok(machines)
}

/// Returns true if the pod takes all GPUs of one of these machines.
fn takes_all(intent: &Intent, machines: &[Machine<'_>]) -> bool {
    machines.iter().any(|machine| machine.devices.gpus.len() == intent.gpus as usize)
}

/// Denies a pod with fewer GPUs than a node has.
fn not_whole(intent: &Intent, resource: &GpuResource, sizes: &BTreeSet<usize>) -> Denial {
    let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    intent.deny(format!(
        "only a device plugin offers {} here, and the kubelet chooses the pod's GPUs after the scheduler \
         has chosen its NICs, so these are near them only if the pod takes all GPUs of a node; set a \
         limit of {}, or install the DRA driver {}, or bind NICs late there (nodeDriver.lateNodes)",
        resource.name,
        sizes.join(" or "),
        resource.driver.driver
    ))
}

/// Denies a pod for which no node has what a claim for whole machines needs.
fn no_machine(intent: &Intent, resource: &GpuResource, among: &Among<'_>) -> Denial {
    let (view, name) = (among.view, &resource.name);
    let offering: Vec<&str> =
        view.nodes_with_plugin(name).filter(|node| among.allows(node)).collect();
    let late = offering.iter().filter(|node| {
        places(view, node).next().is_some() && are_units_whole(view, node, resource.driver, name)
    });
    let late = late.count();
    if late > 0 {
        return intent.deny(format!(
            "only a device plugin offers {name} here, and {} with late binding cannot serve the pod: it \
             takes no more GPUs than its device plugin offers, and no {}, {} or {}, which need NICs by name",
            count(late, "node"),
            annotation::NIC_SHARING,
            annotation::RAIL,
            annotation::NIC_ROLE
        ));
    }
    let with_graph = offering.iter().filter(|node| view.topology(node).is_some()).count();
    let whole =
        offering.iter().filter(|node| has_whole_units(view, node, resource.driver, name)).count();
    intent.deny(format!(
        "only a device plugin offers {name} here, so the pod needs a node with a NodeTopology, as many \
         units of {name} as GPUs, and RDMA NICs for claims: of {} with {name}, {with_graph} with a \
         NodeTopology, {whole} of them with one unit for each GPU, and none of these with such NICs",
        count(offering.len(), "node"),
    ))
}

/// Denies a pod of which only init containers that end have GPUs: nobody reports these GPUs.
fn check_staying(intent: &Intent, resource: &GpuResource) -> Result<(), Denial> {
    if intent.lasting_gpus() > 0 || intent.gpus == 0 {
        return Ok(());
    }
    Err(intent.deny(format!(
        "only a device plugin offers {} here, and only init containers that end have GPUs, so no \
         container is left to bring NICs near; give the container that uses the NICs a limit too",
        resource.name
    )))
}

/// Denies what only a claim for GPUs can tie to them.
fn check_beside(intent: &Intent, resource: &GpuResource) -> Result<(), Denial> {
    let Some(name) = intent.wishes.on_numa_node() else { return Ok(()) };
    let why = format!(
        "only a device plugin offers {} here, and a pod that takes all GPUs of its node has no NUMA \
         node of its own",
        resource.name
    );
    Err(Denial::new(name, "true", why).allowed("no such annotation"))
}
