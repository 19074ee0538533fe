//! Chooses the claim that gives a pod what it requests on the existing nodes, or says why none can.

pub(crate) mod among;
mod choice;
mod complete;
mod decided;
mod extended;
mod found;
mod gpus;
mod late;
mod least_far;
mod nic_checks;
mod nics_only;
pub(crate) mod note;
mod pin;
pub(crate) mod planned;
mod plugin;
mod selection;
mod unknown;
mod unseen;

use crate::demand::Grant;
use crate::denial::Denial;
use crate::fabric::FabricPlacement;
use crate::fleet::GpuSource;
use crate::intent::{AlignmentPolicy, Intent, Pairing};
use crate::join;
use crate::nearness::Nearness;
use crate::trials::Trials;
use among::Among;
use choice::Chooser;
pub(crate) use choice::FABRIC_ATTRIBUTES;
use cluster_model::counted::Counted;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::names::attribute;
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::published;
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use decided::{Decided, Rest};
use extended::Extendable;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
pub use pin::Pin;
pub use planned::PlannedMachine;
pub use selection::drivers;

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
    /// True to admit pods while no machine is known that they can run on, unless they say it themselves.
    pub admit_unknown: bool,
    /// The component that puts the pods of a job on one fabric.
    pub fabric: FabricPlacement,
    /// The scheduler for pods that name none or the default one.
    pub scheduler_name: Option<String>,
    /// What happens to a pod if a quota counted its limits, but none counts its claim.
    pub quota_escape: QuotaEscape,
    /// The extended resources by which the GPUs of claims are counted.
    pub counted: Vec<Counted>,
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
            counted: Vec::new(),
        }
    }
}

impl Policy {
    /// The extended resource that counts the GPUs of this driver, if any.
    pub fn counted(&self, driver: &GpuDriver) -> Option<&str> {
        let counted = self.counted.iter().find(|counted| counted.counts(driver))?;
        Some(&counted.resource)
    }
}

/// The claim that a pod gets, and why this one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the plan is for. Its pairing is the one that was planned.
    pub intent: Intent,
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
    /// The pinned claims, one of which is chosen for each pod; empty if the claim is not pinned.
    pub pins: Vec<Pin>,
}

impl Plan {
    /// The extended resource that counts the GPUs of the claim. Those of a device plugin are counted by its own.
    pub(crate) fn counted<'p>(&self, policy: &'p Policy) -> Option<&'p str> {
        self.plugin.is_none().then(|| policy.counted(self.driver)).flatten()
    }
}

/// Chooses the claim. If a group is on no node as near as requested, and its GPUs can share its NICs
/// evenly, each NIC is near its GPUs instead. If pairs are preferred only by default and exceed the
/// limits of a claim, all devices as one group are preferred instead.
///
/// Present nodes decide. Machines that are only remembered are added to their claim where that takes
/// nothing from them, and are planned for alone where no present node can serve the pod.
pub fn plan(
    intent: &Intent,
    placement: &Placement,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Plan, Denial> {
    plan_again(intent, placement, (view, &Trials::default()), policy)
}

/// The same, with what claims got on machines when earlier plans were made for this cluster.
pub(crate) fn plan_again(
    intent: &Intent,
    placement: &Placement,
    (view, trials): (&ClusterView, &Trials),
    policy: &Policy,
) -> Result<Plan, Denial> {
    let present = Among::present(view, placement, trials);
    let all = Among::all(view, placement, trials);
    match decide(intent, &present, policy) {
        Ok(decided) => Ok(decided.with_remembered(&all, policy)),
        Err(_) if present.has_left_out() => {
            decide(intent, &all, policy).map(|decided| decided.with_remembered(&all, policy))
        }
        Err(denial) => Err(denial),
    }
}

fn decide<'a>(intent: &Intent, among: &Among<'a>, policy: &Policy) -> Result<Decided<'a>, Denial> {
    let decided = pairs_or_group(intent, among, policy);
    let Some(shared) = intent.with_shared_nics() else { return decided };
    if decided.as_ref().is_ok_and(|decided| decided.plan.is_near()) {
        return decided;
    }
    let shared = as_read(&shared, among, policy).ok().filter(|decided| decided.plan.is_near());
    shared.map_or(decided, Ok)
}

fn pairs_or_group<'a>(
    intent: &Intent,
    among: &Among<'a>,
    policy: &Policy,
) -> Result<Decided<'a>, Denial> {
    let is_open = intent.policy == AlignmentPolicy::Preferred
        && intent.pairing == Pairing::Each
        && !intent.is_pairing_named;
    let decided = as_read(intent, among, policy);
    let plan = decided.as_ref().map(|decided| &decided.plan);
    let pairs = plan.map(Plan::aligned_nodes).unwrap_or_default();
    if !is_open || plan.is_ok_and(|plan| pairs == plan.nodes_that_could()) {
        return decided;
    }
    let together = Intent { pairing: Pairing::Group, ..intent.clone() };
    let group = as_read(&together, among, policy).ok().filter(|group| group.plan.is_near());
    let group = group.filter(|group| group.plan.aligned_nodes() > pairs);
    group.map_or(decided, |group| Ok(Decided { is_instead_of_pairs: true, ..group }))
}

/// The plan for the intent: finds machines, proposes claims, tries them, and chooses.
fn as_read<'a>(intent: &Intent, among: &Among<'a>, policy: &Policy) -> Result<Decided<'a>, Denial> {
    let (view, placement) = (among.view, among.placement());
    let waits = intent.waits_for_unknown.unwrap_or(policy.admit_unknown);
    if waits && unknown::is_unknown(placement, view) {
        let plan = unknown::plan(intent, among, policy)?;
        return Ok(Decided::new(plan, intent, Rest::None));
    }
    let found = if intent.gpus == 0 {
        nics_only::find(intent, among, policy)?
    } else if let Some(resource) = plugin::resource(intent, placement, view) {
        plugin::find(intent, resource, among, policy)?
    } else {
        gpus::find(intent, among, policy)?
    };
    let servable = found.servable(found.machines.clone(), view)?;
    let fleet = servable.fleet();
    let choice = Chooser { fleet, view, policy, trials: among.trials }.choose(intent)?;
    let plan = complete::plan(fleet, choice.clone(), view.settings());
    let rest = match found.gpu_source {
        _ if found.remembered.is_empty() => Rest::None,
        GpuSource::Claim => Rest::Added(Box::new(Extendable { found, servable, choice })),
        GpuSource::Nowhere(_) => Rest::SameClaim,
        GpuSource::Plugin | GpuSource::PluginLate(_) => Rest::SamePromise,
    };
    Ok(Decided::new(plan, intent, rest))
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
                    role.is_nic() && device.attribute(attribute::SHAPE).is_some()
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
