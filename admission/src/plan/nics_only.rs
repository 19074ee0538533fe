//! Claims for pods without GPUs: NICs near each other, near CPUs or NVMe devices if these are asked
//! for, of the role asked for.
//!
//! One constraint is enough: NICs publish what they have in common. Nothing has to be kept apart.

use super::among::Among;
use super::decided::Rest;
use super::{
    Outline, Plan, PlannedMachine, Policy, Written, choice, nic_checks, selection, unknown, unseen,
};
use crate::claim::{ClaimParts, match_attribute};
use crate::cost::{self, CostError, Empty, Trial};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, Form, Order, Source, Way};
use crate::join::{self, Classes};
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::ports::PortsApart;
use crate::supply::{self, Unfit, without_rdma};
use crate::wishes::{NicShare, SameRail};
use crate::wording::{count, nodes};
use cluster_model::gpu_drivers;
use cluster_model::machines::{Machine, Selection, machines};
use cluster_model::names::{alternative, annotation, attribute};
use cluster_model::node_devices::NodeDevices;
use cluster_model::placement::Placement;
use cluster_model::plugin_machines::places;
use cluster_model::view::ClusterView;
use dra_allocator::{AttributeValue, Class};
use k8s_openapi::api::resource::v1::{CapacityRequirements, DeviceRequest, DeviceSubRequest};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Level, NicRole, PciAddress};

/// What NICs have in common at a level: the name of the join, and the attribute.
type Common = (&'static str, &'static str);

/// The plan of a pod without GPUs.
pub(super) fn plan(
    intent: &Intent,
    among: &Among<'_>,
    policy: &Policy,
) -> Result<(Plan, Rest<'static>), Denial> {
    let (view, placement) = (among.view, among.placement());
    let (level, common) = common(intent)?;
    let (nic_driver, class) = selection::nics(intent, among, policy)?;
    nic_checks::check_driver(intent, nic_driver)?;
    let selection =
        selection::devices(intent, (gpu_drivers::NONE, None), (nic_driver, &class), view);
    let demand = Demand::of(intent);
    let found = machines(view, &selection, |node| placement.allows(view, node));
    let (mut machines, remembered) = among.split(found);
    if machines.is_empty() {
        return Err(nothing(intent, &selection, placement, view));
    }
    nic_checks::keep_distinct(intent, nic_driver, &mut machines)?;
    intent.wishes.keep_near(&demand, view, &mut machines)?;
    let asked = (intent.policy, intent.level);
    let granted = intent.wishes.keep_granting(&demand, asked, view.settings(), &mut machines)?;
    let near: Vec<bool> = machines.iter().map(|it| most_near(it, common) >= intent.nics).collect();
    let is_preferred = intent.policy == AlignmentPolicy::Preferred;
    let serves: Vec<bool> = if is_preferred {
        machines.iter().map(|machine| machine.devices.nics.len() >= intent.nics as usize).collect()
    } else {
        near.clone()
    };
    if !serves.contains(&true) {
        return Err(shortage(intent, level, common, &machines));
    }
    let nic_class = NicClass::new(nic_driver, intent.nic_role, &machines);
    let of_class = (&*class, &nic_class, granted.capacity.as_ref());
    let mut written = write(intent, &demand, common, of_class);
    let ports = PortsApart::new(nic_driver, &demand, &machines, &serves, view.settings());
    ports.constrain(&mut written);
    nic_class.keep_equal(&mut written, demand.all_nics());
    let nearness = Nearness::Level(level);
    let trial = trial(intent, view, &machines, (&demand, nearness), &written, policy)?;
    let counted = trial.only(&serves, Empty::LastResort);
    if !counted.contains(&true) {
        let unfit = Unfit::new(&machines, &serves, choice::claim(&written));
        return Err(match unfit {
            Some(unfit) => supply::unfit(intent, view, &unfit),
            None => shortage(intent, level, common, &machines),
        });
    }
    let kept = trial.only(&near, Empty::All);
    let planned = planned(&machines, nearness, (&serves, &counted), (&near, &kept));
    let is_near = planned.iter().any(|machine| machine.nearness.is_some());
    let rest = if remembered.is_empty() { Rest::None } else { Rest::SameClaim };
    let outline = Outline {
        driver: gpu_drivers::NONE,
        nic_driver,
        join: if is_near { common.0 } else { join::UNALIGNED },
        nearness,
        why: format!("NICs publish {}, so one constraint keeps them together", common.1),
        far_because: join::FAR,
        machines: planned,
    };
    let shares_ports = ports.why_not(nic_driver, &written, view.settings());
    let claim = choice::claim(&written);
    let grants = demand.grants(&intent.shares);
    let steps = trial.steps;
    let written = Written { claim, nic_requests: written.nic_requests, grants, steps };
    Ok((Plan { shares_ports, ..Plan::new(intent, outline, written) }, rest))
}

/// The plan while nothing is known about the nodes that the pod can run on.
pub(super) fn unseen(intent: &Intent, view: &ClusterView, policy: &Policy) -> Result<Plan, Denial> {
    let (level, common) = common(intent)?;
    let (nic_driver, class) = unseen::nics(intent, view, policy)?;
    nic_checks::check_driver(intent, nic_driver)?;
    let demand = Demand::of(intent);
    let capacity = intent.wishes.share.as_ref().map(NicShare::unseen);
    let nic_class = NicClass::unseen(nic_driver, intent.nic_role);
    let written = write(intent, &demand, common, (&class, &nic_class, capacity.as_ref()));
    let drivers = (gpu_drivers::NONE, nic_driver);
    Ok(unknown::untried(intent, &demand, written, (drivers, common.0, level)))
}

/// The requests and constraints for NICs of this class, with this capacity of each if it is shared.
fn write(
    intent: &Intent,
    demand: &Demand,
    common: Common,
    (class, nic_class, capacity): (&Class, &NicClass, Option<&CapacityRequirements>),
) -> ClaimParts {
    let form = Form { ways: vec![way(intent, common)], only: None, apart: Apart::Kind };
    let source = Source {
        driver: gpu_drivers::NONE,
        gpu_profile: None,
        classes: &Classes { gpu: String::new(), nic: class.name.to_string() },
        nic_class,
        without_interface: intent.host_network,
        rails: &[],
        capacity,
        gpu_capacity: None,
        gpu_addresses: &[],
        last_resort: alternative::ANY,
    };
    let mut written = form.write(demand, source, Order::NicThenGpu);
    if intent.policy == AlignmentPolicy::Preferred {
        prefer(&mut written, common);
    }
    intent.wishes.add_to(demand, &mut written);
    written
}

/// What the plan says about each machine.
fn planned(
    machines: &[Machine<'_>],
    nearness: Nearness,
    (serves, counted): (&[bool], &[bool]),
    (could, near): (&[bool], &[bool]),
) -> Vec<PlannedMachine> {
    let answers = serves.iter().zip(counted).zip(could.iter().zip(near));
    machines
        .iter()
        .zip(answers)
        .map(|(machine, ((serves, counted), (could, near)))| {
            let is_unfit = *serves && !counted;
            PlannedMachine {
                nodes: super::some_nodes(machine),
                present: machine.live_nodes(),
                is_served: *counted,
                could: *could && !is_unfit,
                is_unfit,
                nearness: near.then_some(nearness),
            }
        })
        .collect()
}

/// The level that the pod asks for, and the attribute by which NICs of a cell know each other.
fn common(intent: &Intent) -> Result<(Level, Common), Denial> {
    if intent.wishes.rail.is_some() {
        return Err(SameRail::deny(
            "a rail is that of the NIC next to a GPU, and the pod has no GPU",
        ));
    }
    let level = intent.level.unwrap_or(Level::Numa);
    let common = match level {
        Level::Switch => ("switch", attribute::PCIE_SWITCH),
        Level::Root => ("root", attribute::PCIE_ROOT),
        Level::Numa => ("numa", attribute::NUMA_NODE),
        Level::RootPort | Level::Socket => {
            let why = "no attribute of NICs says it, and the pod has no GPU";
            let denial = Denial::new(annotation::ALIGNMENT, level.to_string(), why);
            return Err(denial.allowed("\"switch\", \"root\" or \"numa\""));
        }
    };
    Ok((level, common))
}

/// A single NIC has nothing to be near to.
fn way(intent: &Intent, (join, name): Common) -> Way {
    if intent.nics == 1 || intent.policy == AlignmentPolicy::Preferred {
        Way::Any
    } else {
        Way::Attribute { join, name, only: None }
    }
}

/// The most NICs of a machine with one value of the attribute.
fn most_near(machine: &Machine<'_>, (_, name): Common) -> u32 {
    let mut cells: BTreeMap<&AttributeValue, BTreeSet<PciAddress>> = BTreeMap::new();
    for (address, nic) in &machine.devices.nics {
        if let Some(value) = nic.attribute(name).filter(|value| !value.is_list()) {
            cells.entry(value).or_default().insert(machine.devices.topology.port_of(*address));
        }
    }
    let most = cells.values().map(BTreeSet::len).max().unwrap_or_default();
    // One NIC needs no attribute.
    u32::try_from(most).unwrap_or(u32::MAX).max(u32::from(!machine.devices.nics.is_empty()))
}

/// Turns the request for NICs into one for near ones, or else any.
fn prefer(written: &mut ClaimParts, (join, name): Common) {
    let Some(request) = written.requests.first_mut() else { return };
    let Some(ask) = request.exactly.take() else { return };
    let alternative = |name: &str| DeviceSubRequest {
        name: name.to_owned(),
        device_class_name: ask.device_class_name.clone(),
        allocation_mode: ask.allocation_mode.clone(),
        count: ask.count,
        selectors: ask.selectors.clone(),
        capacity: ask.capacity.clone(),
        ..DeviceSubRequest::default()
    };
    let near = format!("{}/{join}", request.name);
    *request = DeviceRequest {
        name: request.name.clone(),
        exactly: None,
        first_available: Some(vec![alternative(join), alternative(alternative::ANY)]),
    };
    written.constraints.push(match_attribute(vec![near], name));
}

fn trial(
    intent: &Intent,
    view: &ClusterView,
    machines: &[Machine<'_>],
    (demand, nearness): (&Demand, Nearness),
    written: &ClaimParts,
    policy: &Policy,
) -> Result<Trial, Denial> {
    let claim = choice::claim(written);
    let levels = vec![Some(nearness); machines.len()];
    let found = cost::trial(view, machines, demand, (&levels, nearness), &claim, policy.max_steps);
    found.map_err(|error| {
        intent.deny(match error {
            CostError::OverBudget(budget) => format!(
                "every claim for {} would take the scheduler more than {budget} search steps on \
                 one half-busy node; ask for fewer devices",
                count(intent.nics as usize, "NIC")
            ),
            error => error.to_string(),
        })
    })
}

fn nothing(
    intent: &Intent,
    selection: &Selection<'_>,
    placement: &Placement,
    view: &ClusterView,
) -> Denial {
    let late = view
        .inventory()
        .node_names()
        .filter(|node| placement.allows(view, node) && places(view, node).next().is_some());
    let late: Vec<String> = late.map(ToString::to_string).collect();
    if intent.nic_role == NicRole::Compute && !late.is_empty() {
        return intent.deny(format!(
            "the NICs of {} are bound late: the driver chooses those near the GPUs that a device \
             plugin gives a pod, and this pod has no GPU; it needs a node whose NICs are bound by name",
            nodes(&late)
        ));
    }
    let role = match intent.nic_role {
        NicRole::Compute => String::new(),
        role => format!("{role} "),
    };
    let nodes = view.inventory().node_names().filter(|node| placement.allows(view, node));
    let nodes: Vec<_> = nodes.filter_map(|node| NodeDevices::new(view, node)).collect();
    let others = without_rdma(&nodes, selection.nic_driver, intent);
    intent.deny(format!(
        "no node that the pod can run on has a NodeTopology and {role}RDMA NICs of driver {} in \
         class `{}`{}",
        selection.nic_driver.driver,
        selection.nic_class.name,
        others.unwrap_or_default()
    ))
}

fn shortage(intent: &Intent, level: Level, common: Common, machines: &[Machine<'_>]) -> Denial {
    let place = Nearness::Level(level).place();
    let most = machines.iter().map(|machine| most_near(machine, common)).max().unwrap_or_default();
    let all = machines.iter().map(Machine::ports).max().unwrap_or_default();
    intent.deny(format!(
        "asks for {} on one {place}; no node in this cluster has more than {most} there, and more \
         than {all} in total",
        count(intent.nics as usize, "NIC")
    ))
}
