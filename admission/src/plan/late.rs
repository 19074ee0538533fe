//! A claim for NICs that names none, for a pod that takes a part of a node's GPUs from a device plugin.
//!
//! On a node that binds NICs late, the scheduler counts NICs, the kubelet then chooses the pod's GPUs,
//! and the driver gives it the nearest free NICs when it starts. So the plan promises counts when the
//! pod is scheduled, and nearness when it starts: with required alignment the pod does not start with
//! farther NICs.

use super::among::Among;
use super::selection;
use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::intent::{AlignmentPolicy, GpuResource, Intent, Pairing};
use crate::join::Candidate;
use crate::join::form::{Apart, Form, Way};
use crate::nearness::Nearness;
use crate::promise::{Promise, Promises};
use crate::wishes::{NicConfig, Wishes};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::network_config::LateBindingConfig;
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::text;
use cluster_model::plugin_machines::{PluginSelection, late_machines};
use cluster_model::view::ClusterView;
use dra_allocator::Class;
use topology_graph::{Level, NicRole};

/// The name of the join.
pub(super) const JOIN: &str = "late";

/// The most places of a request by numbers.
const PLACES_MAX: u32 = 8;

/// Why the claim names no NIC.
const WHY: &str = "a device plugin offers the GPUs, and the nodes bind NICs late: the driver chooses them \
                   when the pod starts, near the GPUs that the kubelet gave it";

/// A warning that an init container has more GPUs than stay, of which the kubelet says nothing.
pub(super) fn warning(intent: &Intent) -> Option<String> {
    let lasting = intent.lasting_gpus();
    let more = intent.shares.iter().find(|share| share.gpus.end > lasting)?;
    Some(format!(
        "init container `{}` has more GPUs than the containers that stay, and the kubelet reports only \
         the GPUs of those: the NICs are near these",
        more.container
    ))
}

/// The machines that bind NICs late and have enough GPUs for the pod. None if the pod asks for what
/// only NICs by name can give it: a share, a rail, another role, or the host's network beside NICs that
/// have interfaces.
pub(super) fn machines<'v>(
    intent: &Intent,
    resource: &GpuResource,
    nics: (&'static NicDriver, &Class),
    among: &Among<'v>,
) -> Vec<Machine<'v>> {
    if intent.wishes.need_named_nics() || intent.nic_role != NicRole::Compute {
        return Vec::new();
    }
    let nics = selection::nic_devices(intent, nics);
    let selection = PluginSelection { gpu_driver: resource.driver, resource: &resource.name, nics };
    let mut machines = late_machines(among.view, &selection, |node| among.allows(node));
    machines.retain(|machine| {
        has_units(among.view, machine, &resource.name, intent.gpus)
            && (!intent.host_network || is_infiniband(machine))
    });
    machines
}

/// Whether a node's device plugin offers so many GPUs: divided ones are none of its units.
fn has_units(view: &ClusterView, machine: &Machine<'_>, resource: &str, gpus: u32) -> bool {
    let mut nodes = machine.nodes.iter();
    nodes.any(|node| view.plugin_units(node, resource).is_some_and(|units| units >= gpus.into()))
        && machine.devices.gpus.len() >= gpus as usize
}

fn is_infiniband(machine: &Machine<'_>) -> bool {
    let mut nics = machine.devices.nics.values();
    nics.all(|nic| text(nic, attribute::LINK_TYPE) == Some("infiniband"))
}

/// The intent as it is planned: the kubelet can choose any GPUs, so only the NICs of each can be near it.
pub(super) fn spread(intent: &Intent) -> Intent {
    let gpus = intent.lasting_gpus();
    let pairing = match intent.pairing {
        Pairing::Group if intent.nics.is_multiple_of(gpus) => Pairing::Each,
        Pairing::Group if gpus.is_multiple_of(intent.nics) => Pairing::Shared,
        named => named,
    };
    Intent { gpus, pairing, ..intent.clone() }
}

/// The intent with what the driver must know when the pod starts.
pub(super) fn configured(intent: &Intent, within: Level) -> Intent {
    let is_required = intent.policy == AlignmentPolicy::Required;
    let wanted =
        LateBindingConfig { gpus: Some(intent.gpus), within: Some(within).filter(|_| is_required) };
    let nic_config = NicConfig::with_late_binding(intent.wishes.nic_config.as_ref(), &wanted);
    let wishes = Wishes { nic_config, ..intent.wishes.clone() };
    Intent { wishes, ..intent.clone() }
}

/// The claim: a number of NICs.
pub(super) fn propose<'m>(fleet: Fleet<'_, 'm>, within: Level) -> Candidate<'m> {
    let is_preferred = fleet.intent.policy == AlignmentPolicy::Preferred;
    let nearness = Nearness::Level(within);
    let promises = Promises::of_each(fleet.machines, |machine| {
        let near = has_near(fleet, within, machine).then_some(nearness);
        Promise::best(near, is_preferred && has_enough(fleet, machine))
    });
    let Intent { gpus, nics, .. } = *fleet.intent;
    let all = 0..gpus;
    let form = Form::new(vec![Way::Late(None)], Apart::Block);
    let candidate = Candidate::new(fleet, (JOIN, WHY.to_owned()), form, promises);
    Candidate { nearness, demand: Demand::new(1, gpus, nics, vec![all]), ..candidate }
}

/// The same with places by their numbers, for a pod that takes all NICs of its node: one request for all of
/// them is a search of 2^n steps while one is in use. `None` if the pod leaves NICs, or if containers have
/// GPUs of their own, which cannot be told from the places.
pub(super) fn propose_by_number<'m>(fleet: Fleet<'_, 'm>, within: Level) -> Option<Candidate<'m>> {
    fleet.demand().as_counts(&fleet.intent.shares)?;
    let counted = propose(fleet, within);
    let Intent { gpus, nics, .. } = *fleet.intent;
    let takes_all =
        fleet.machines.iter().all(|machine| machine.devices.nics.len() == nics as usize);
    let size = (2..=PLACES_MAX).rev().find(|size| nics.is_multiple_of(*size));
    let size = size.filter(|size| takes_all && nics > *size)?;
    let ways =
        (0..nics / size).map(|block| vec![Way::Late(Some(block * size..(block + 1) * size))]);
    let form = Form::by_block(ways.collect());
    let blocks = nics / size;
    let demand = Demand::new(blocks, 1, size, vec![0..gpus; blocks as usize]);
    Some(Candidate { demand, form, ..counted })
}

/// Whether the machine has as many NICs as the pod asks for.
fn has_enough(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> bool {
    machine.devices.nics.len() >= fleet.intent.nics as usize
}

/// Whether the machine has NICs near any GPUs that the kubelet can choose.
pub(super) fn has_near(fleet: Fleet<'_, '_>, within: Level, machine: &Machine<'_>) -> bool {
    has_enough(fleet, machine) && fleet.demand().fits(&Nearness::Level(within).cells(machine))
}

/// How near each NIC must be to its GPU: as the user asks, otherwise on the same NUMA node, or socket if
/// that has several of them. The driver chooses the nearest in any case.
pub(super) fn within(intent: &Intent, machines: &[Machine<'_>]) -> Level {
    match (intent.level, Nearness::weakest(machines)) {
        (Some(level), _) | (None, Nearness::Level(level)) => level,
        (None, Nearness::Partner) => Level::Numa,
    }
}
