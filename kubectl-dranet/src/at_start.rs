//! What pods whose NICs are chosen when they start can expect, and what they got.

use crate::answer::ExpectedAtStart;
use crate::predicted::paired;
use crate::text::{counted, listed};
use cluster_model::late_node::{LateDemand, LateNode, place_count};
use cluster_model::plugin_machines::places;
use cluster_model::predict::{Fit, Prediction, predict};
use cluster_model::view::{ClusterView, LateClaim, ObjectKey, late_binding};
use dra_allocator::{Claim, ClaimAllocation};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use scheduler_ext::score::AtStart;
use std::collections::BTreeMap;
use topology_graph::{Level, PciAddress};

/// What a running pod got for its places, or what it waits for.
pub(crate) enum AtNode {
    /// Its NICs are chosen.
    Got(String),
    /// The driver has given it none yet.
    Waits(String),
}

impl ExpectedAtStart {
    /// What a pod with these claims, as allocated on the node, can expect; `None` if none of its devices is
    /// a place.
    pub(crate) fn new<'s>(
        view: &ClusterView,
        node: &str,
        specs: impl Iterator<Item = &'s ResourceClaimSpec>,
        allocations: &[ClaimAllocation],
    ) -> Option<Self> {
        let mut places = specs.zip(allocations.iter().map(place_count));
        let (spec, nics) = places.find(|(_, places)| *places > 0)?;
        let late = LateNode::new(view, node, view.inventory().state());
        let demand = LateDemand::new(spec, nics).zip(late);
        let Some((demand, late)) = demand else {
            let topology_policy = view.topology_policy(node).map(|policy| policy.to_string());
            let within = late_binding(spec).within.unwrap_or(Level::Numa).to_string();
            return Some(Self { within, near_eighths: None, hidden_gpus: None, topology_policy });
        };
        let hidden_gpus = Some(late.hidden_gpus());
        let topology_policy = late.policy().map(|policy| policy.to_string());
        let expected = late.expect(demand);
        let near = AtStart::PARTS - AtStart::new(&expected).missed;
        let within = expected.within.to_string();
        Some(Self { within, near_eighths: Some(near), hidden_gpus, topology_policy })
    }

    /// The same for each of these nodes that binds NICs late.
    pub(crate) fn on_nodes<'n>(
        view: &ClusterView,
        nodes: impl Iterator<Item = &'n str>,
        (specs, claims): (&[ResourceClaimSpec], &[Claim]),
    ) -> BTreeMap<&'n str, Self> {
        let late = nodes.filter(|node| places(view, node).next().is_some());
        late.filter_map(|node| {
            let Prediction::Fits(Fit { allocations, .. }) = predict(view, node, claims) else {
                return None;
            };
            Some((node, Self::new(view, node, specs.iter(), &allocations)?))
        })
        .collect()
    }

    /// `near for 5/8 of the kubelet's choices of GPUs`.
    pub(crate) fn sentence(&self) -> String {
        let near = match self.near_eighths {
            None => "not known how near".to_owned(),
            Some(0) => "near for few or none of the kubelet's choices of GPUs".to_owned(),
            Some(AtStart::PARTS) => "near for all of the kubelet's choices of GPUs".to_owned(),
            Some(some) => {
                format!("near for {some}/{} of the kubelet's choices of GPUs", AtStart::PARTS)
            }
        };
        let hidden = match self.hidden_gpus {
            None | Some(0) => String::new(),
            Some(hidden) => {
                let are = if hidden == 1 { "is" } else { "are" };
                format!("; {} {are} in use or divided, not known which", counted(hidden, "GPU"))
            }
        };
        near + &hidden
    }
}

impl AtNode {
    /// What the claims of a pod on a node got; `None` if none of them holds places.
    pub(crate) fn new(view: &ClusterView, node: &str, claims: &[ObjectKey]) -> Option<Self> {
        let pool = &places(view, node).next()?.id().pool;
        let (_, claim) = view.late_claims_by_key(pool).find(|(key, _)| claims.contains(key))?;
        if claim.is_bound() {
            return Some(Self::Got(got(view, node, claim)));
        }
        let within = claim.wanted.within.map_or_else(
            || "any free NICs".to_owned(),
            |level| format!("free NICs as near to its GPUs as `{level}`"),
        );
        let free = LateNode::free_nics(view, node).unwrap_or_default();
        let free: Vec<String> = free.iter().map(ToString::to_string).collect();
        let free = if free.is_empty() {
            "none is free now".to_owned()
        } else {
            format!("free are {}", listed(&free))
        };
        let nics = counted(claim.places, "NIC");
        Some(Self::Waits(format!(
            "has not got its {nics} there yet: it starts with {within}; {free}. If the pod \
             keeps waiting, its event NICsNotPrepared says how far each NIC is"
        )))
    }
}

/// `GPU0 with 0101:00:00.0 (PIX)`, for each GPU of the pod.
fn got(view: &ClusterView, node: &str, claim: &LateClaim) -> String {
    let nics: BTreeMap<PciAddress, String> =
        claim.nics.iter().map(|nic| (*nic, nic.to_string())).collect();
    let Some(topology) = view.topology(node).filter(|_| !claim.gpus.is_empty()) else {
        return listed(&nics.into_values().collect::<Vec<_>>());
    };
    let gpus = claim.gpus.iter().map(|gpu| {
        let known = topology.gpu(*gpu);
        (*gpu, known.map_or_else(|| gpu.to_string(), |known| known.name.clone()))
    });
    paired(topology, &gpus.collect(), &nics).join(", ")
}
