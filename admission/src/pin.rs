//! Which of several claims a pod gets where a claim is pinned to cells: the one that most
//! nodes can serve now, less the pods that wait for it already.
//!
//! A pinned claim does not go where devices become free later. So the choice looks at what is
//! in use, and is made for each pod anew; all else of a plan holds until machines change.

use crate::plan::Plan;
use crate::template::TEMPLATE_LABEL;
use cluster_model::placement::Placement;
use cluster_model::predict::{Prediction, predict_each};
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimName};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One of the claims by which a pod can be served.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The cells that it is pinned to; `None` is any devices, where near ones are preferred.
    pub place: Option<String>,
    /// The claim.
    pub claim: ResourceClaimSpec,
    /// Name of its template.
    pub template: String,
    /// The most search steps that it takes on a node.
    pub steps: u64,
    /// Names of the requests for NICs.
    pub nic_requests: Vec<String>,
}

/// The plan with the claim that is best now. `created` says how many pods got a template so
/// lately that their claims may not be there yet.
pub fn choose(
    plan: Plan,
    placement: &Placement,
    view: &ClusterView,
    created: impl Fn(&str) -> usize,
) -> Plan {
    if plan.pins.is_empty() {
        return plan;
    }
    let claims = claims(view);
    let load = |pin: &Pin| {
        let ClaimCounts { open, all } =
            claims.get(pin.template.as_str()).copied().unwrap_or_default();
        let created = created(&pin.template);
        let waiting = open.max(created);
        let room = room(pin, placement, view).saturating_sub(waiting);
        Load { room, waiting, pods: all.max(created) }
    };
    let loads: Vec<_> = plan.pins.iter().map(load).collect();
    let index = best(&plan.pins, &loads).unwrap_or_default();
    plan.pinned(index)
}

/// How a claim is asked for.
#[derive(Clone, Copy)]
struct Load {
    /// Nodes that can serve one more pod by it.
    room: usize,
    /// Pods that wait by it.
    waiting: usize,
    /// Pods that have it.
    pods: usize,
}

/// The pinned claim with most room and of these the one with fewest pods, else any devices
/// where these will do, else the pinned claim that fewest pods wait for; of equals the first.
fn best(pins: &[Pin], loads: &[Load]) -> Option<usize> {
    let near = || (0..pins.len()).filter(|index| pins[*index].place.is_some());
    let free = near().filter(|index| loads[*index].room > 0);
    free.min_by_key(|index| (Reverse(loads[*index].room), loads[*index].pods))
        .or_else(|| pins.iter().position(|pin| pin.place.is_none()))
        .or_else(|| near().min_by_key(|index| loads[*index].waiting))
}

/// The plan with the claim of this template, where it is one of its pins.
pub(crate) fn kept(plan: &Plan, template: &str) -> Option<Plan> {
    let index = plan.pins.iter().position(|pin| pin.template == template)?;
    Some(plan.clone().pinned(index))
}

/// Where else a pod that waits by the claim of this template could run now: the cells that it
/// waits for, and others that are free.
pub fn elsewhere<'p>(
    plan: &'p Plan,
    template: &str,
    placement: &Placement,
    view: &ClusterView,
) -> Option<(&'p str, &'p str)> {
    let own = plan.pins.iter().find(|pin| pin.template == template)?;
    let place = own.place.as_deref()?;
    if room(own, placement, view) > 0 {
        return None;
    }
    let claims = claims(view);
    let free = |pin: &&Pin| {
        let claims = claims.get(pin.template.as_str()).copied().unwrap_or_default();
        room(pin, placement, view) > claims.open
    };
    let others = plan.pins.iter().filter(|pin| pin.place.is_some());
    let mut others = others.filter(|pin| pin.template != template);
    Some((place, others.find(free)?.place.as_deref()?))
}

/// How many nodes can serve a claim now, by the scheduler's own allocator.
fn room(pin: &Pin, placement: &Placement, view: &ClusterView) -> usize {
    let Ok(claim) = Claim::from_spec(ClaimName::new("", "plan"), &pin.claim) else { return 0 };
    let nodes = view.inventory().node_names().map(|name| &**name);
    let nodes = nodes.filter(|node| !view.is_remembered(node) && placement.allows(view, node));
    let state = view.inventory().state();
    let found = predict_each(view, nodes, &[claim], state, &|| false);
    found.values().filter(|it| matches!(it, Prediction::Fits { .. })).count()
}

/// How many claims were made from a template.
#[derive(Clone, Copy, Default)]
struct ClaimCounts {
    /// Those without devices.
    open: usize,
    all: usize,
}

/// The claims of each template, of all namespaces: its name says what it holds.
fn claims(view: &ClusterView) -> BTreeMap<&str, ClaimCounts> {
    let mut claims: BTreeMap<&str, ClaimCounts> = BTreeMap::new();
    for (_, claim) in view.claims() {
        if let Some(template) = claim.labels.get(TEMPLATE_LABEL) {
            let known = claims.entry(template).or_default();
            known.all += 1;
            known.open += usize::from(!claim.is_allocated);
        }
    }
    claims
}
