//! A claim for the NICs of a pod that gets its GPUs from a device plugin by its limit. The kubelet
//! chooses these GPUs after the scheduler has chosen the NICs, so NICs can be near GPUs only if the pod
//! takes all GPUs of its node. Then no constraint is needed: the graph of the node's type says which
//! NICs are near which GPU. With preferred alignment a pod that takes a part gets any NICs.

pub(super) mod late;
mod nics;

use super::among::Among;
use super::decided::Rest;
use super::selection;
use super::{Outline, Plan, PlannedMachine, Policy, Written, choice, nic_checks};
use crate::claim::{CLAIM_PARTS_MAX, ClaimParts, match_attribute};
use crate::cost::{self, Empty};
use crate::demand::{Demand, Grant};
use crate::denial::Denial;
use crate::intent::{AlignmentPolicy, GpuResource, Intent};
use crate::join::{self, Question};
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::ports::PortsApart;
use crate::supply::{self, Unfit};
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
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use nics::NicPlan;
use std::cmp::Ordering;
use std::collections::BTreeSet;
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
    let nodes = view.inventory().node_names().filter(|node| placement.allows(view, node));
    let (remembered, present): (Vec<&str>, Vec<&str>) =
        nodes.map(|node| &**node).partition(|node| view.is_remembered(node));
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

pub(super) fn plan(
    intent: &Intent,
    resource: &GpuResource,
    among: &Among<'_>,
    policy: &Policy,
) -> Result<(Plan, Rest<'static>), Denial> {
    let (view, placement) = (among.view, among.placement());
    check_beside(intent, resource)?;
    let (nic_driver, nic_class) = selection::nics(intent, among, policy)?;
    nic_checks::check_driver(intent, nic_driver)?;
    let selected = (nic_driver, &*nic_class);
    let (named, left_out) = match machines(intent, resource, selected, among) {
        Ok(found) => {
            let (named, left_out) = among.split(found);
            (Ok(named), left_out)
        }
        Err(denial) => (Err(denial), Vec::new()),
    };
    if !named.as_ref().is_ok_and(|named| takes_all(intent, named)) {
        let late = late::machines(intent, resource, selected, placement, view);
        let (late, left_out) = among.split(late);
        if !late.is_empty() {
            check_staying(intent, resource)?;
            let plan = late::plan(intent, resource, &late, selected, (view, policy))?;
            return Ok((plan, rest(&left_out)));
        }
    }
    let mut machines = named?;
    if machines.is_empty() {
        return Err(intent.deny("no present node can serve the pod"));
    }
    nic_checks::keep_distinct(intent, nic_driver, &mut machines)?;
    let demand = Demand::of(intent);
    intent.wishes.keep_near(&demand, view, &mut machines)?;
    let nics = NicClass::new(nic_driver, intent.nic_role, &machines);
    let asked = (intent.policy, intent.level);
    let granted = intent.wishes.keep_granting(&demand, asked, view.settings(), &mut machines)?;
    let question = Question {
        demand: &demand,
        counts: None,
        driver: resource.driver,
        machines: &machines,
        rails: &granted.rails,
        nic_class: &nics,
        capacity: granted.capacity.as_ref(),
        shared_gpus: None,
    };
    let chosen =
        NicPlan::new(intent, question, |machine| choice::levels(intent, question, machine));
    if !chosen.serves.contains(&true) {
        return Err(supply::shortage(intent, question));
    }
    let apart = PortsApart::new(nic_driver, &demand, &machines, &chosen.serves, view.settings());
    let mut parts = written(intent, question, &chosen, &nic_class.name);
    apart.constrain(&mut parts);
    let shares_ports = apart.why_not(nic_driver, &parts, view.settings());
    let plan = complete(intent, resource, question, &chosen, parts, (view, policy))?;
    Ok((Plan { shares_ports, ..plan }, rest(&left_out)))
}

/// How these remembered machines are added to a plan.
fn rest(left_out: &[Machine<'_>]) -> Rest<'static> {
    if left_out.is_empty() { Rest::None } else { Rest::SamePromise }
}

/// The machines all of whose GPUs the pod takes; for preferred alignment also those of which it takes a
/// part, since it promises any NICs.
fn machines<'v>(
    intent: &Intent,
    resource: &GpuResource,
    nics: (&'static NicDriver, &Class),
    among: &Among<'v>,
) -> Result<Vec<Machine<'v>>, Denial> {
    let (view, placement) = (among.view, among.placement());
    let nics = selection::nic_devices(intent, nics);
    let selection = PluginSelection { gpu_driver: resource.driver, resource: &resource.name, nics };
    let filter = |node: &str| placement.allows(view, node);
    let mut machines = plugin_machines(view, &selection, filter);
    if machines.is_empty() && nics.only_shared {
        let nics = NicSelection { only_shared: false, ..nics };
        if !plugin_machines(view, &PluginSelection { nics, ..selection }, filter).is_empty() {
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
            no_machine(intent, resource, placement, view)
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
fn no_machine(
    intent: &Intent,
    resource: &GpuResource,
    placement: &Placement,
    view: &ClusterView,
) -> Denial {
    let name = &resource.name;
    let offering: Vec<&str> =
        view.nodes_with_plugin(name).filter(|node| placement.allows(view, node)).collect();
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

fn written(
    intent: &Intent,
    question: Question<'_>,
    chosen: &NicPlan,
    nic_class: &str,
) -> ClaimParts {
    let mut parts = chosen.write(intent, question, nic_class);
    for attribute in choice::FABRIC_ATTRIBUTES {
        let mut all = question.machines.iter().zip(&chosen.serves);
        if all.all(|(machine, serves)| !serves || machine.nics_have(attribute)) {
            parts.constraints.push(match_attribute(parts.nic_requests.clone(), attribute));
        }
    }
    intent.wishes.add_to(question.demand, &mut parts);
    question.nic_class.keep_equal(&mut parts, question.demand.all_nics());
    parts
}

fn complete(
    intent: &Intent,
    resource: &GpuResource,
    question: Question<'_>,
    chosen: &NicPlan,
    parts: ClaimParts,
    (view, policy): (&ClusterView, &Policy),
) -> Result<Plan, Denial> {
    let Question { demand, machines, .. } = question;
    if parts.requests.len() > CLAIM_PARTS_MAX {
        return Err(supply::too_many_parts(intent, question));
    }
    if intent.wishes.could_repeat(&parts, view.settings()) {
        let why = "before Kubernetes 1.37 the scheduler could give one NIC twice";
        return Err(intent.deny(why));
    }
    let nearness = chosen.nearness(machines).unwrap_or(Nearness::Level(Level::Numa));
    let levels = (chosen.levels.as_slice(), nearness);
    let tried = tried(intent, question, parts, (&chosen.serves, levels), (view, policy))?;
    let kept = chosen.only_where(&tried.served, &tried.near);
    let nearness = kept.nearness(machines).unwrap_or(nearness);
    let is_whole = machines.iter().any(|machine| nics::is_whole(machine, demand));
    let (why, far_because) =
        if is_whole { (WHOLE, join::FAR) } else { (PART, "the kubelet chooses the GPUs later") };
    let join = if kept.is_near() { JOIN } else { join::UNALIGNED };
    let planned =
        (0..machines.len()).map(|index| planned(intent, question, (chosen, &kept), index));
    let outline = Outline {
        driver: resource.driver,
        nic_driver: question.nic_class.driver(),
        join,
        nearness,
        why: why.to_owned(),
        far_because,
        machines: planned.collect(),
    };
    Ok(finish(intent, resource, question, outline, tried))
}

/// A claim that was tried on all machines.
struct Tried {
    claim: ResourceClaimSpec,
    nic_requests: Vec<String>,
    steps: u64,
    /// The machines that it is for and that it fits on, at least one.
    served: Vec<bool>,
    /// Those of them on which it gets more than the last resort.
    near: Vec<bool>,
}

/// Tries a claim that is for some of the machines, with the nearness on each.
fn tried(
    intent: &Intent,
    question: Question<'_>,
    parts: ClaimParts,
    (serves, levels): (&[bool], (&[Option<Nearness>], Nearness)),
    (view, policy): (&ClusterView, &Policy),
) -> Result<Tried, Denial> {
    let Question { demand, machines, .. } = question;
    let claim = choice::claim(&parts);
    let trial = cost::trial(view, machines, demand, levels, &claim, policy.max_steps);
    let trial = trial.map_err(|error| match error {
        cost::CostError::OverBudget(budget) => supply::too_costly(intent, question, budget),
        error => intent.deny(error.to_string()),
    })?;
    let counted = trial.only(serves, Empty::LastResort);
    if !counted.contains(&true) {
        return Err(match Unfit::new(machines, serves, claim) {
            Some(unfit) => supply::unfit(intent, view, &unfit),
            None => supply::shortage(intent, question),
        });
    }
    let near = trial.only(serves, Empty::All);
    Ok(Tried { claim, nic_requests: parts.nic_requests, steps: trial.steps, served: counted, near })
}

/// Writes the plan of a claim that was tried.
fn finish(
    intent: &Intent,
    resource: &GpuResource,
    question: Question<'_>,
    outline: Outline,
    tried: Tried,
) -> Plan {
    let Tried { claim, nic_requests, steps, .. } = tried;
    let grants = intent
        .shares
        .iter()
        .map(|share| Grant { container: share.container.clone(), requests: None })
        .collect();
    let written = Written { claim, nic_requests, grants, steps };
    Plan {
        plugin: Some(resource.name.clone()),
        rails: question.rails.to_vec(),
        ..Plan::new(intent, outline, written)
    }
}

fn planned(
    intent: &Intent,
    question: Question<'_>,
    (chosen, kept): (&NicPlan, &NicPlan),
    index: usize,
) -> PlannedMachine {
    let machine = &question.machines[index];
    let could = |level: &Nearness| question.demand.fits(&level.cells(machine));
    let is_whole = nics::is_whole(machine, question.demand);
    let is_unfit = chosen.serves[index] && !kept.serves[index];
    PlannedMachine {
        nodes: super::some_nodes(machine),
        present: machine.live_nodes(),
        is_served: kept.serves[index],
        could: is_whole && !is_unfit && choice::levels(intent, question, machine).iter().any(could),
        is_unfit,
        nearness: kept.levels[index],
    }
}
