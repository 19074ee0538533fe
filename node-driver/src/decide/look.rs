//! What follows from a look at the machine: what is published, and what the next look must know. Pure:
//! the same facts, settings and history always give the same result.

use crate::decide::binding::Binding;
use crate::decide::peer_memory;
use crate::facts::held::GivenNics;
use crate::facts::modules::KernelFacts;
use cluster_model::topology_policy::TopologyPolicy;
use publication::decision::Decision;
use publication::history::History;
use publication::host_setup::SetUp;
use publication::judge::{BindNics, Rules};
use publication::machine::{Facts, Usage};
use publication::netns_mode::NetnsMode;
use std::time::Instant;

/// What a look finds.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// The machine, without what pods have of it.
    pub(crate) machine: Facts,
    /// What pods have of it, and what else is known of its NICs.
    pub(crate) usage: Usage,
    /// The mode of its RDMA subsystem.
    pub(crate) namespaces: Option<NetnsMode>,
    pub(crate) kernel: KernelFacts,
    /// What claims hold; `None` if that cannot be read.
    pub(crate) given: Option<GivenNics>,
    /// How flags and the node's labels say that NICs are bound.
    pub(crate) bind_nics: BindNics,
    /// How the kubelet chooses the NUMA nodes of GPUs of device plugins, if known.
    pub(crate) topology_policy: Option<TopologyPolicy>,
    /// What prepares the host.
    pub(crate) setup: SetUp,
    pub(crate) now: Instant,
}

/// The administrator's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rules: Rules,
    /// Whether containers with RDMA devices may lock all of their memory; `None` if the driver gives
    /// containers nothing.
    pub(crate) locked_memory: Option<bool>,
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
}

/// Decides what to publish.
pub(crate) fn decide(look: Look, settings: &Settings, history: &History) -> Outcome {
    let Look { machine: mut facts, usage, .. } = look;
    let rules = &settings.rules;
    let (mut machine, mut history) = history.look(&mut facts, &usage, rules, look.now);
    let mode = look.namespaces.filter(|_| !facts.snapshot.rdma.is_empty());
    machine.topology.rdma_namespace_mode = mode.map(|mode| mode.name().to_owned());
    machine.topology.locked_memory = settings.locked_memory;
    machine.topology.topology_manager_policy = look.topology_policy.map(|it| it.to_string());
    let given = look.given.as_ref();
    let binding = Binding::decide(history.binding, look.bind_nics, given, machine.given(rules));
    history.binding = Some(binding.now);
    machine.host.extend(look.setup.modules.iter().cloned());
    machine.host.extend(peer_memory::condition(&look.kernel));
    machine.host.extend(look.setup.vendor_driver.clone());
    machine.replace_driver(&look.setup.withheld, &look.setup.evicted);
    let rules = Rules { bind_nics: binding.now, ..rules.clone() };
    let places = look.given.map(|given| given.places).unwrap_or_default();
    let mut decision = machine.decide(&rules, &places);
    decision.host.extend(binding.condition());
    Outcome { decision, history, binding }
}

#[cfg(test)]
pub(crate) mod tests;
