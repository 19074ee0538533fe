//! A denial because the allocator refuses a claim that the graphs of machines allow.

use super::asked;
use crate::cost;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::Candidate;
use cluster_model::machines::Machine;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;

/// A claim that fits on none of the machines that it is for, and the first of them.
#[derive(Clone, Debug)]
pub(crate) struct Unfit {
    node: String,
    /// The name of its type, if it is only remembered.
    remembered: Option<String>,
    claim: ResourceClaimSpec,
}

impl Unfit {
    /// A candidate's claim for some of these machines; `None` if it is for none.
    pub(crate) fn new(
        machines: &[Machine<'_>],
        candidate: &Candidate<'_>,
        claim: ResourceClaimSpec,
    ) -> Option<Self> {
        let mut machines = machines.iter();
        let machine = machines.find(|machine| candidate.promises.serve(machine))?;
        let node = machine.devices.node.to_owned();
        let remembered = (machine.live_nodes() == 0)
            .then(|| machine.type_name.clone().unwrap_or_else(|| "unknown type".to_owned()));
        Some(Self { node, remembered, claim })
    }
}

/// Denies a pod whose claims fit nowhere, with what the allocator says.
pub(crate) fn unfit(intent: &Intent, view: &ClusterView, unfit: &Unfit) -> Denial {
    let place = match &unfit.remembered {
        Some(name) => format!("on a remembered machine ({name})"),
        None => format!("on node {}", unfit.node),
    };
    let reason = cost::reason(view, &unfit.node, &unfit.claim);
    intent.deny(format!(
        "no claim for {} fits on any node, even with nothing in use; {place}: {}",
        asked(intent),
        reason.as_deref().unwrap_or("no choice of devices satisfies the claim")
    ))
}
