//! A claim for NICs that names none, for a pod that takes a part of a node's GPUs from a device plugin.
//!
//! On a node that binds NICs late, the scheduler counts NICs, the kubelet then chooses the pod's GPUs,
//! and the driver gives it the nearest free NICs when it starts. So the plan promises counts when the
//! pod is scheduled, and nearness when it starts: with required alignment the pod does not start with
//! farther NICs.

use super::{finish, tried};
use crate::claim::{Ask, ClaimParts, exactly};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::intent::{AlignmentPolicy, GpuResource, Intent, Pairing};
use crate::join::{self, Question};
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::plan::{Outline, Plan, PlannedMachine, Policy, selection, some_nodes};
use crate::supply;
use crate::wishes::{NicConfig, Wishes};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::network_config::LateBindingConfig;
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::text;
use cluster_model::placement::Placement;
use cluster_model::plugin_machines::{PluginSelection, late_machines};
use cluster_model::view::ClusterView;
use dra_allocator::Class;
use topology_graph::{Level, NicRole};

/// The name of the join.
pub(in crate::plan) const JOIN: &str = "late";

/// Why the claim names no NIC.
const WHY: &str = "a device plugin offers the GPUs, and the nodes bind NICs late: the driver chooses them \
                   when the pod starts, near the GPUs that the kubelet gave it";

/// The request for NICs.
const REQUEST: &str = "nics";

/// A warning that an init container has more GPUs than stay, of which the kubelet says nothing.
pub(in crate::plan) fn warning(intent: &Intent) -> Option<String> {
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
    placement: &Placement,
    view: &'v ClusterView,
) -> Vec<Machine<'v>> {
    if intent.wishes.need_named_nics() || intent.nic_role != NicRole::Compute {
        return Vec::new();
    }
    let nics = selection::nic_devices(intent, nics);
    let selection = PluginSelection { gpu_driver: resource.driver, resource: &resource.name, nics };
    let mut machines = late_machines(view, &selection, |node| placement.allows(view, node));
    machines.retain(|machine| {
        has_units(view, machine, &resource.name, intent.gpus)
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

/// The plan on these machines.
pub(super) fn plan(
    intent: &Intent,
    resource: &GpuResource,
    machines: &[Machine<'_>],
    (nic_driver, nic_class): (&'static NicDriver, &Class),
    (view, policy): (&ClusterView, &Policy),
) -> Result<Plan, Denial> {
    intent.wishes.check_machines(machines, view)?;
    let spread = spread(intent);
    let demand = Demand::of(&spread);
    let nics = NicClass::new(nic_driver, intent.nic_role, machines);
    let question = Question {
        demand: &demand,
        counts: None,
        driver: resource.driver,
        machines,
        rails: &[],
        nic_class: &nics,
        capacity: None,
        shared_gpus: None,
    };
    let within = within(intent, machines);
    let is_preferred = intent.policy == AlignmentPolicy::Preferred;
    let fits = |machine: &Machine<'_>| demand.fits(&Nearness::Level(within).cells(machine));
    let has_enough = |machine: &Machine<'_>| machine.devices.nics.len() >= intent.nics as usize;
    let near: Vec<bool> = machines.iter().map(|it| has_enough(it) && fits(it)).collect();
    let serves: Vec<bool> =
        if is_preferred { machines.iter().map(has_enough).collect() } else { near.clone() };
    if !serves.contains(&true) {
        return Err(supply::shortage(intent, question));
    }
    let ask = Ask {
        class: &nic_class.name,
        count: intent.nics,
        selector: nics.selector(intent.host_network).and_true(attribute::LATE_BINDING),
        capacity: None,
    };
    let parts = ClaimParts {
        requests: vec![exactly(REQUEST, ask)],
        constraints: Vec::new(),
        nic_requests: vec![REQUEST.to_owned()],
    };
    let wanted = LateBindingConfig {
        gpus: Some(intent.lasting_gpus()),
        within: Some(within).filter(|_| !is_preferred),
    };
    let config = NicConfig::with_late_binding(intent.wishes.nic_config.as_ref(), &wanted);
    let wishes = Wishes { nic_config: config, ..intent.wishes.clone() };
    // The text names the NICs of the claim, and not as many as the fullest GPU could have for each.
    let told = Intent { wishes, nics: intent.nics, ..spread.clone() };
    let nearness = Nearness::Level(within);
    let levels: Vec<_> = near.iter().map(|near| near.then_some(nearness)).collect();
    let levels = (levels.as_slice(), nearness);
    let tried = tried(&told, question, parts, (&serves, levels), (view, policy))?;
    let answers = near.iter().zip(serves.iter().zip(&tried.served));
    let planned = machines.iter().zip(answers).map(|(machine, (near, (serves, served)))| {
        let is_unfit = *serves && !served;
        PlannedMachine {
            nodes: some_nodes(machine),
            present: machine.live_nodes(),
            is_served: *served,
            could: *near && !is_unfit,
            is_unfit,
            nearness: (*near && *served).then_some(nearness),
        }
    });
    let outline = Outline {
        driver: resource.driver,
        nic_driver,
        join: JOIN,
        nearness,
        why: WHY.to_owned(),
        far_because: join::FAR,
        machines: planned.collect(),
    };
    Ok(finish(&told, resource, question, outline, tried))
}

/// How near each NIC must be to its GPU: as the user asks, otherwise on the same NUMA node, or socket if
/// that has several of them. The driver chooses the nearest in any case.
fn within(intent: &Intent, machines: &[Machine<'_>]) -> Level {
    match (intent.level, Nearness::weakest(machines)) {
        (Some(level), _) | (None, Nearness::Level(level)) => level,
        (None, Nearness::Partner) => Level::Numa,
    }
}

/// The pod's devices in pairs: the kubelet can choose any GPUs, so only the NICs of each can be near it.
fn spread(intent: &Intent) -> Intent {
    let gpus = intent.lasting_gpus();
    let pairing = match intent.pairing {
        Pairing::Group if intent.nics.is_multiple_of(gpus) => Pairing::Each,
        Pairing::Group if gpus.is_multiple_of(intent.nics) => Pairing::Shared,
        named => named,
    };
    // If the NICs do not divide evenly, each GPU counts with the most that one can get.
    let nics = match pairing {
        Pairing::Each => gpus * intent.nics.div_ceil(gpus.max(1)),
        Pairing::Group | Pairing::Shared => intent.nics,
    };
    Intent { nics, gpus, pairing, ..intent.clone() }
}
