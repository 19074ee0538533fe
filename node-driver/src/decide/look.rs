//! What follows from a look at the machine: what is published, and what the next look must know. Pure:
//! the same facts, settings and history always give the same result.

use crate::decide::binding::Binding;
use crate::decide::peer_memory;
use crate::facts::held::GivenNics;
use crate::facts::modules::KernelFacts;
use crate::facts::seen::Seen;
use cluster_model::topology_policy::TopologyPolicy;
use publication::decision::{Decision, Facts, NicExpressions, decide_with};
use publication::filter::Filter;
use publication::health::PortErrors;
use publication::health::taint::TaintArgs;
use publication::health::{Health, Problems};
use publication::held::Held;
use publication::host_setup::SetUp;
use publication::late::{BindNics, LateNic};
use publication::netns_mode::NetnsMode;
use publication::rails::KnownRails;
use publication::sharing::SharingArgs;
use publication::withheld::WithheldReason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use topology_graph::PciAddress;

/// What a look finds.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// The machine, without what pods have of it.
    pub(crate) machine: Facts,
    /// The mode of its RDMA subsystem.
    pub(crate) namespaces: Option<NetnsMode>,
    pub(crate) kernel: KernelFacts,
    /// The devices that pods have.
    pub(crate) held: Held,
    /// The NICs that were chosen for places, by the name of the place.
    pub(crate) places: BTreeMap<String, String>,
    /// What claims hold; `None` if that cannot be read.
    pub(crate) given: Option<GivenNics>,
    /// How flags and the node's labels say that NICs are bound.
    pub(crate) bind_nics: BindNics,
    /// RDMA devices that do not answer.
    pub(crate) unresponsive: BTreeSet<String>,
    /// Errors of ports, by RDMA device.
    pub(crate) port_errors: BTreeMap<String, PortErrors>,
    /// Corrected errors of the NICs' `PCIe` links.
    pub(crate) link_errors: BTreeMap<PciAddress, u64>,
    /// How the kubelet chooses the NUMA nodes of GPUs of device plugins, if known.
    pub(crate) topology_policy: Option<TopologyPolicy>,
    /// What prepares the host.
    pub(crate) setup: SetUp,
    pub(crate) now: Instant,
}

/// The administrator's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) filter: Filter,
    pub(crate) nic_role: Filter,
    pub(crate) nic_rail: Filter,
    pub(crate) sharing: SharingArgs,
    pub(crate) taints: TaintArgs,
    /// Whether containers with RDMA devices may lock all of their memory; `None` if the driver gives
    /// containers nothing.
    pub(crate) locked_memory: Option<bool>,
}

/// What earlier looks have left.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// NICs as they were before pods got them.
    pub(crate) seen: Seen,
    /// The NICs that rails are counted over.
    pub(crate) rails: KnownRails,
    pub(crate) health: Health,
    /// The problems at the last look.
    pub(crate) problems: Problems,
    /// How NICs were bound at the last look; `None` before the first.
    pub(crate) binding: Option<BindNics>,
}

/// What follows from a look.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What is published.
    pub(crate) decision: Decision,
    /// What the next look must know.
    pub(crate) history: History,
    /// How NICs are bound until the next look.
    pub(crate) binding: Binding,
    /// The NICs behind the places, if NICs are bound late.
    pub(crate) late: Option<Vec<LateNic>>,
}

/// Decides what to publish.
pub(crate) fn decide(look: Look, settings: &Settings, history: &History) -> Outcome {
    let Look { machine: mut facts, held, now, .. } = look;
    history.seen.complete(&mut facts, &held);
    let expressions = NicExpressions { role: &settings.nic_role, rail: &settings.nic_rail };
    let mut decision = decide_with(&facts, expressions, &history.rails)
        .without(&look.setup.not_ready, &WithheldReason::NotReady)
        .with_rdma_namespaces(look.namespaces, &facts.snapshot);
    let gone = history.seen.gone(&facts.snapshot, &held);
    let mut seen = history.seen.clone();
    seen.remember(&decision.devices, &facts, &held);
    seen.name_interfaces(&mut decision.topology.identities);
    decision = decision
        .with_unresponsive(&look.unresponsive, &facts.snapshot)
        .with_errors(&look.port_errors, &look.link_errors, &facts.snapshot)
        .with_gone(gone)
        .filtered(&settings.filter)
        .with_something_to_give(&facts.snapshot, &held)
        .one_function_per_port(&facts.snapshot, &held);
    let given = look.given.as_ref();
    let binding = Binding::decide(history.binding, look.bind_nics, given, &decision.devices);
    // A NIC that is bound late is for one pod.
    if binding.now == BindNics::Named {
        decision = decision.shared(&settings.sharing);
    }
    decision = decision
        .with_host(look.setup.modules.iter().cloned().collect())
        .with_host(peer_memory::condition(&look.kernel).into_iter().collect())
        .with_locked_memory(settings.locked_memory)
        .with_topology_policy(look.topology_policy);
    let mut health = history.health.clone();
    health.observe(&decision.vitals, now);
    let problems = health.problems(now);
    decision = decision.tainted(&problems, settings.taints);
    decision = heed(decision, &look.setup);
    decision = decision.with_nic_conditions(&problems);
    decision.host.extend(binding.condition());
    let (decision, late) = if binding.now == BindNics::Late {
        let taken = held.into_keys().collect();
        let (decision, nics) = decision.bound_late(&look.places, &taken);
        (decision, Some(nics))
    } else {
        (decision, None)
    };
    let rails = decision.rails.clone();
    let history = History { seen, rails, health, problems, binding: Some(binding.now) };
    Outcome { decision, history, binding, late }
}

/// Withholds NICs whose driver is being loaded, and has pods evicted that it waits for.
fn heed(mut decision: Decision, setup: &SetUp) -> Decision {
    decision.host.extend(setup.vendor_driver.clone());
    decision.without(&setup.withheld, &WithheldReason::VendorDriver).evicting(&setup.evicted)
}

#[cfg(test)]
pub(crate) mod tests;
