//! Chooses the claim that gives a pod what it requests on the existing nodes, or says why none can.

mod choice;
mod nics_only;
pub(crate) mod note;
mod plugin;
mod selection;
mod unknown;

use crate::demand::{Demand, Grant};
use crate::denial::Denial;
use crate::fabric::{self, FabricPlacement};
use crate::gpu_sharing::SharedGpus;
use crate::intent::{AlignmentPolicy, Intent, Pairing, nic_config};
use crate::join::{self, Candidate, Classes, Question};
use crate::nearness::Nearness;
use crate::nic_class::{self, NicClass};
use crate::pin::Pin;
use crate::sharing::{self, NicShare};
use crate::{cpus, nvmes, rail};
use crate::{supply, template};
pub(crate) use choice::FABRIC_ATTRIBUTES;
use choice::{Choice, Chosen};
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::{Machine, Selection, machines};
use cluster_model::names::{attribute, cpu, nvme};
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::{Role, published};
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use dra_allocator::Settings;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
pub use selection::drivers;
pub(crate) use selection::{publishes, selects};
use std::slice;
use std::sync::Arc;

/// The default maximum of search steps that a claim may take on one node: 20 ms in the scheduler.
pub const STEPS_MAX: u64 = 10_000;

/// What happens to a pod whose namespace has a quota on GPU limits. The claim that replaces the
/// limits would not count against the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "server", derive(clap::ValueEnum))]
pub enum QuotaEscape {
    /// Deny it.
    Deny,
    /// Admit it with a warning.
    Warn,
}

/// The operator's settings for the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// DeviceClass of whole GPUs. Defaults to the class for the extended resource, otherwise the
    /// class named like the driver.
    pub gpu_class: Option<String>,
    /// DeviceClass of our NICs.
    pub nic_class: String,
    /// The most search steps on one node.
    pub max_steps: u64,
    /// Namespaces whose pods may set addresses and routes; `*` is all.
    pub network_namespaces: Vec<String>,
    /// True to admit pods while no machine is known that they can run on.
    pub admit_unknown: bool,
    /// The component that puts the pods of a job on one fabric.
    pub fabric: FabricPlacement,
    /// The scheduler for pods that name none or the default one.
    pub scheduler_name: Option<String>,
    /// What happens to a pod if a quota counted its limits, but none counts its claim.
    pub quota_escape: QuotaEscape,
}

impl Default for Policy {
    fn default() -> Self {
        let nic_class = cluster_model::names::NIC_CLASS.to_owned();
        Self {
            gpu_class: None,
            nic_class,
            max_steps: STEPS_MAX,
            network_namespaces: Vec::new(),
            admit_unknown: false,
            fabric: FabricPlacement::Off,
            scheduler_name: None,
            quota_escape: QuotaEscape::Deny,
        }
    }
}

/// The claim that a pod gets, and why this one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The driver of the claimed GPUs.
    pub driver: &'static GpuDriver,
    /// The extended resource by which a device plugin gives the pod its GPUs. The claim is then for
    /// NICs only, and the limits of the pod stay.
    pub plugin: Option<String>,
    /// The driver of the claimed NICs.
    pub nic_driver: &'static NicDriver,
    /// The name of the join that ties GPUs to NICs.
    pub join: &'static str,
    /// The guaranteed nearness of the devices.
    pub nearness: Nearness,
    /// Whether alignment is required.
    pub policy: AlignmentPolicy,
    /// Explains the choice of the join to the user.
    pub why: String,
    /// The claim.
    pub claim: ResourceClaimSpec,
    /// The part of the claim that each container may use.
    pub grants: Vec<Grant>,
    /// The number of nodes that can serve the claim when nothing is in use, and the number of all
    /// nodes with a graph.
    pub nodes: (usize, usize),
    /// The distinct machines. On one that the plan serves, the claim is satisfied whenever suitable
    /// devices are free.
    pub machines: Vec<PlannedMachine>,
    /// Why some pods get devices that are not near.
    pub(crate) far_because: &'static str,
    /// The most search steps that the claim takes on a node.
    pub steps: u64,
    /// Why the pod can get several virtual functions of one port, if it can.
    pub(crate) shares_ports: Option<&'static str>,
    /// Which nodes can give the pod a GPU that other pods use too.
    pub(crate) shared_gpus: Option<String>,
    /// Names of the requests for NICs.
    pub nic_requests: Vec<String>,
    /// The cells that the claim is pinned to, if any.
    pub place: Option<String>,
    /// The label of the nodes that the claim is limited to, if any.
    pub node_label: Option<(&'static str, String)>,
    /// The common rails of the job's pods, if they request the same ones.
    pub rails: Vec<i64>,
    /// CPUs on the NUMA node of the devices, if requested.
    pub cpus: Option<u32>,
    /// NVMe devices on the NUMA node of the devices, if requested.
    pub nvmes: Option<u32>,
    /// The pod's share of each NIC, if it shares them.
    pub share: Option<NicShare>,
    /// The pinned claims, one of which is chosen for each pod; empty if the claim is not pinned.
    pub pins: Vec<Pin>,
    devices: (u32, u32),
    pairing: Pairing,
}

/// A distinct machine of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMachine {
    /// Some of its nodes, at least one.
    pub nodes: Vec<String>,
    /// The number of its present nodes; 0 for a machine that is only remembered.
    pub present: usize,
    /// Whether the plan serves it.
    pub is_served: bool,
    /// Whether it has enough devices that are as near as the pod requires, or, for preferred
    /// alignment, as near as a NUMA node or socket.
    pub could: bool,
    /// The nearness that the plan guarantees there, or tries first. `None` if the plan does not
    /// serve the machine, or with any devices.
    pub nearness: Option<Nearness>,
}

/// Chooses the claim. If a group is on no node as near as requested, and its GPUs can share its NICs
/// evenly, each NIC is near its GPUs instead. If pairs are preferred only by default and exceed the
/// limits of a claim, all devices as one group are preferred instead.
pub fn plan(
    intent: &Intent,
    placement: &Placement,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Plan, Denial> {
    let planned = plan_or_group(intent, placement, view, policy);
    let Some(shared) = intent.with_shared_nics() else { return planned };
    if planned.as_ref().is_ok_and(Plan::is_near) {
        return planned;
    }
    let shared = plan_as_read(&shared, placement, view, policy).ok().filter(Plan::is_near);
    shared.map_or(planned, Ok)
}

fn plan_or_group(
    intent: &Intent,
    placement: &Placement,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Plan, Denial> {
    let is_open = intent.policy == AlignmentPolicy::Preferred
        && intent.pairing == Pairing::Each
        && !intent.is_pairing_named;
    let planned = plan_as_read(intent, placement, view, policy);
    let pairs = planned.as_ref().map(Plan::aligned_nodes).unwrap_or_default();
    if !is_open || planned.as_ref().is_ok_and(|plan| pairs == plan.nodes_that_could()) {
        return planned;
    }
    let together = Intent { pairing: Pairing::Group, ..intent.clone() };
    let plan = plan_as_read(&together, placement, view, policy).ok().filter(Plan::is_near);
    let Some(plan) = plan.filter(|plan| plan.aligned_nodes() > pairs) else { return planned };
    let why = format!("{}; a claim in pairs would be too large", plan.why);
    Ok(Plan { why, ..plan })
}

fn plan_as_read(
    intent: &Intent,
    placement: &Placement,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Plan, Denial> {
    if intent.gpus == 0 {
        return nics_only::plan(intent, placement, view, policy);
    }
    if policy.admit_unknown && unknown::is_unknown(placement, view) {
        return unknown::plan(intent, view, policy);
    }
    if let Some(resource) = plugin::resource(intent, placement, view) {
        return plugin::plan(intent, resource, placement, view, policy);
    }
    let selected = selection::select(intent, view, policy)?;
    nic_class::check_driver(intent, selected.nic_driver)?;
    let demand = Demand::of(intent);
    // Plain counts cannot tie CPUs or NVMe devices to certain NICs.
    let by_counts = (intent.cpus.is_none() && intent.nvmes.is_none()) || demand.blocks == 1;
    let counts = demand.as_counts(&intent.shares).filter(|_| by_counts);
    let cpu_class = view.inventory().class(cpu::CLASS).filter(|_| intent.cpus.is_some());
    let nvme_class = view.inventory().class(nvme::CLASS).filter(|_| intent.nvmes.is_some());
    let filter = |node: &str| placement.allows(view, node);
    let selection = Selection {
        gpu_driver: selected.driver,
        gpu_class: Some(&selected.gpu_class),
        gpu_profile: intent.gpu_profile(),
        nic_driver: selected.nic_driver,
        nic_class: &selected.nic_class,
        nic_role: intent.nic_role,
        without_interface: intent.host_network,
        only_shared: intent.share.is_some(),
        cpu_class: cpu_class.map(|class| &**class),
        nvme_class: nvme_class.map(|class| &**class),
    };
    let mut machines = machines(view, &selection, filter);
    if machines.is_empty() && intent.share.is_some() {
        let whole = Selection { only_shared: false, ..selection };
        if !self::machines(view, &whole, filter).is_empty() {
            return Err(sharing::none_shared());
        }
    }
    if machines.is_empty() {
        return Err(supply::nothing(intent, view, &selection, filter));
    }
    nic_class::keep_distinct(intent, selected.nic_driver, &mut machines)?;
    nic_config::check_machines(intent, &machines)?;
    fabric::check_machines(intent, &machines, view)?;
    cpus::keep_near_cpus(intent, &demand, view, &mut machines)?;
    nvmes::keep_near_nvmes(intent, &demand, &mut machines)?;
    let nic_class = NicClass::of(selected.nic_driver, intent.nic_role, &machines);
    let capacity = sharing::keep_shareable(intent, view.settings(), &mut machines)?;
    let rails = rail::keep(intent, &demand, &mut machines)?;
    let shared_gpus = SharedGpus::of(selected.driver, view.settings(), &machines);
    let classes = selected.classes();
    let question = Question {
        demand: &demand,
        counts: counts.as_ref(),
        driver: selected.driver,
        machines: &machines,
        rails: &rails,
        nic_class: &nic_class,
        capacity: capacity.as_ref(),
        shared_gpus: shared_gpus.as_ref(),
    };
    let choice = choice::choose(intent, question, &classes, view, policy)?;
    Ok(complete(intent, question, choice, view.settings()))
}

impl Plan {
    /// Returns true if the pod gets near devices when such are free.
    fn is_near(&self) -> bool {
        self.join != join::UNALIGNED
    }

    /// Whether this project's driver gives out the NICs. Upstream's driver has the same name, but its
    /// NICs have none of our attributes.
    pub(crate) fn has_own_nics(&self, view: &ClusterView) -> bool {
        let nodes =
            self.machines.iter().filter(|it| it.is_served).filter_map(|it| it.nodes.first());
        self.nic_driver.is_ours()
            && nodes.into_iter().all(|node| {
                published(view, node).any(|(role, device)| {
                    role == Role::Nic && device.attribute(attribute::SHAPE).is_some()
                })
            })
    }

    /// Whether this project's driver gives out the NICs, and lifts the limit of locked memory on the
    /// nodes that the plan is for.
    pub(crate) fn lifts_limits(&self, view: &ClusterView) -> bool {
        let served = self.machines.iter().filter(|it| it.is_served);
        let mut nodes = served.flat_map(|machine| &machine.nodes);
        self.has_own_nics(view) && !nodes.any(|node| view.limits_locked_memory(node))
    }

    /// The nodes on which near devices are tried: present ones, and remembered machines.
    fn aligned_nodes(&self) -> (usize, usize) {
        self.count(|machine| machine.nearness.is_some())
    }

    /// The nodes that have near devices.
    fn nodes_that_could(&self) -> (usize, usize) {
        self.count(|machine| machine.could)
    }

    fn count(&self, counts: impl Fn(&PlannedMachine) -> bool) -> (usize, usize) {
        let counted = self.machines.iter().filter(|machine| counts(machine));
        counted.fold((0, 0), |(present, remembered), machine| {
            let is_remembered = usize::from(machine.present == 0);
            (present + machine.present, remembered + is_remembered)
        })
    }

    /// Returns the plan with one of its pinned claims.
    pub(crate) fn pinned(self, index: usize) -> Self {
        let Some(pin) = self.pins.get(index).cloned() else { return self };
        let Pin { place, node_label, claim, steps, nic_requests, template: _ } = pin;
        Self { claim, steps, nic_requests, place, node_label, ..self }
    }
}

fn complete(intent: &Intent, question: Question<'_>, choice: Choice, settings: &Settings) -> Plan {
    let machines = question.machines;
    let Choice { best, pins } = choice;
    let Chosen { candidate, claim, nic_requests, steps, shares_ports } = best;
    let planned =
        (0..machines.len()).map(|index| planned(intent, question, (&candidate, &pins), index));
    let planned: Vec<PlannedMachine> = planned.collect();
    let shared_gpus =
        question.shared_gpus.and_then(|it| it.warning(&candidate.demand, &planned, settings));
    let pins = pins.into_iter().map(|pin| complete_pin(intent, pin)).collect();
    let claim = with_config(claim, intent, &nic_requests);
    let all = planned.iter().map(|machine| machine.present).sum();
    let serving = planned.iter().filter(|machine| machine.is_served);
    let serving = serving.map(|machine| machine.present).sum();
    Plan {
        driver: question.driver,
        plugin: None,
        nic_driver: question.nic_class.driver(),
        join: candidate.join,
        nearness: candidate.nearness,
        policy: intent.policy,
        nodes: (serving, all),
        machines: planned,
        far_because: candidate.far_because,
        grants: candidate.demand.grants(&intent.shares),
        why: candidate.why,
        claim,
        steps,
        shares_ports,
        shared_gpus,
        nic_requests,
        place: candidate.form.place(),
        node_label: candidate.form.node_label(),
        rails: question.rails.to_vec(),
        cpus: intent.cpus,
        nvmes: intent.nvmes,
        share: intent.share.clone(),
        pins,
        devices: (intent.gpus, intent.nics),
        pairing: intent.pairing,
    }
}

fn complete_pin(intent: &Intent, chosen: Chosen) -> Pin {
    let Chosen { candidate, claim, nic_requests, steps, .. } = chosen;
    let claim = with_config(claim, intent, &nic_requests);
    let template = template::build(&claim).metadata.name.unwrap_or_default();
    let node_label = candidate.form.node_label();
    Pin { place: candidate.form.place(), node_label, claim, template, steps, nic_requests }
}

fn with_config(
    mut claim: ResourceClaimSpec,
    intent: &Intent,
    nic_requests: &[String],
) -> ResourceClaimSpec {
    if let Some(devices) = &mut claim.devices {
        devices.config = nic_config::claim_config(intent, nic_requests);
    }
    claim
}

/// The most nodes of a machine that a plan keeps, to name them.
const NODES_KEPT: usize = 3;

/// Some nodes of a machine, at least one.
fn some_nodes(machine: &Machine<'_>) -> Vec<String> {
    machine.nodes.iter().take(NODES_KEPT).map(|name| (*name).to_owned()).collect()
}

fn planned(
    intent: &Intent,
    question: Question<'_>,
    (best, pins): (&Candidate, &[Chosen]),
    index: usize,
) -> PlannedMachine {
    let machine = &question.machines[index];
    let all = || std::iter::once(best).chain(pins.iter().map(|pin| &pin.candidate));
    let level = match (intent.policy, intent.level) {
        (AlignmentPolicy::Required, Some(level)) => Nearness::Level(level),
        _ => Nearness::weakest(slice::from_ref(machine)),
    };
    PlannedMachine {
        nodes: some_nodes(machine),
        present: machine.live_nodes(),
        is_served: all().any(|candidate| candidate.serves[index]),
        could: question.demand.fits(&level.cells(machine)),
        nearness: all().filter_map(|candidate| candidate.levels[index]).min(),
    }
}

/// The drivers and the device classes of a plan.
pub(crate) struct Selected {
    pub(crate) driver: &'static GpuDriver,
    pub(crate) gpu_class: Arc<dra_allocator::Class>,
    pub(crate) nic_driver: &'static NicDriver,
    pub(crate) nic_class: Arc<dra_allocator::Class>,
}

impl Selected {
    fn classes(&self) -> Classes {
        Classes { gpu: self.gpu_class.name.to_string(), nic: self.nic_class.name.to_string() }
    }
}
