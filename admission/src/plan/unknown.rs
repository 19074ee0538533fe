//! A claim for machines that are not known yet, if the operator prefers that pods wait instead of
//! being denied: no node that the pod can run on has devices, for example because its pool is scaled
//! to zero and was never seen. GPUs and NICs are tied by attributes that need no graph: the UUID of a
//! partner GPU, which our NICs publish, and the standard NUMA attribute, which GPU drivers publish
//! since Kubernetes 1.37.

use super::among::Among;
use super::choice::Chooser;
use super::{Plan, Policy, complete, nic_checks, nics_only, unseen};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::fleet::{Fleet, GpuSource, Terms};
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::Candidate;
use crate::join::form::{Apart, Form, Way};
use crate::nic_class::NicClass;
use crate::promise::Promises;
use crate::wishes::{Granted, NicShare, SameRail};
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::names::attribute;
use cluster_model::node_devices::published;
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use std::collections::BTreeSet;
use topology_graph::Level;

/// Why the claim has this join.
const WHY: &str =
    "no machine that the pod can run on is known yet, and this is what drivers have in common";

/// Returns true if nothing is known about the nodes that a pod can run on: none of them has GPUs or
/// NICs, by a DRA driver or a device plugin, and no such machine is remembered.
pub(super) fn is_unknown(placement: &Placement, view: &ClusterView) -> bool {
    let plugins = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
    let offered: BTreeSet<&str> =
        plugins.flat_map(|resource| view.nodes_with_plugin(resource)).collect();
    let mut nodes = placement.nodes(view);
    nodes.all(|node| !offered.contains(node) && published(view, node).next().is_none())
}

pub(super) fn plan(intent: &Intent, among: &Among<'_>, policy: &Policy) -> Result<Plan, Denial> {
    let Among { view, trials, .. } = *among;
    let gpu_source = match intent.gpus {
        0 => GpuSource::Nowhere(nics_only::common(intent)?),
        _ if intent.wishes.rail.is_some() => {
            return Err(SameRail::deny("no machine is known yet, so its rails are unknown"));
        }
        _ => GpuSource::Claim,
    };
    intent.check_claim_size()?;
    let selected = unseen::select(intent, view, policy)?;
    nic_checks::check_driver(intent, selected.nic_driver)?;
    let capacity = intent.wishes.share.as_ref().map(NicShare::unseen);
    let terms = Terms {
        gpu_source,
        demand: Demand::of(intent),
        counts: None,
        driver: selected.driver,
        classes: selected.classes(),
        nic_class: NicClass::unseen(selected.nic_driver, intent.nic_role),
        granted: Granted { capacity, rails: Vec::new() },
        shared_gpus: None,
    };
    let fleet = Fleet { intent, terms: &terms, machines: &[] };
    let candidate = match gpu_source {
        GpuSource::Nowhere(common) => {
            Candidate { join: common.join, ..nics_only::propose(fleet, common) }
        }
        GpuSource::Claim | GpuSource::Plugin | GpuSource::PluginLate(_) => {
            let ways = ways(intent, &terms.demand, selected.driver);
            let join = if ways.len() == 1 { "numa" } else { "mixed" };
            let form = Form::new(ways, Apart::Kind);
            Candidate::new(fleet, (join, String::new()), form, Promises::default())
        }
    };
    let candidate = Candidate { why: WHY.to_owned(), ..candidate };
    let chooser = Chooser { fleet, view, policy, trials };
    Ok(complete::untried(chooser, candidate))
}

/// The attributes that need no graph, near to far, and for preferred alignment any devices. Several
/// need the GPU driver's kind attribute to keep them apart.
fn ways(intent: &Intent, demand: &Demand, driver: &GpuDriver) -> Vec<Way> {
    // NICs carry the driver's own NUMA attribute too.
    let numa = Way::by("numa", driver.numa_attribute.unwrap_or(attribute::NUMA_NODE));
    if driver.kind_attribute.is_none() {
        return vec![numa];
    }
    // A pair has one GPU, and need not be below one switch or root.
    let pairs = demand.gpus == 1 && intent.level.is_none_or(|level| level == Level::Numa);
    let partner = driver.uuid_attribute.filter(|_| pairs).map(|name| Way::by("partner", name));
    let any = (intent.policy == AlignmentPolicy::Preferred).then_some(Way::Any);
    partner.into_iter().chain([numa]).chain(any).collect()
}
