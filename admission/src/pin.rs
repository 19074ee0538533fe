//! Chooses the claim for a pod if its plan has several, each pinned to cells: the one
//! that most nodes can serve now, minus the pods that already wait for it.
//!
//! A pinned claim cannot use devices that become free elsewhere. So this choice depends
//! on what is in use and is made for each pod; everything else in a plan is valid until
//! machines change.

use crate::plan::{Pin, Plan};
use crate::template::TEMPLATE_LABEL;
use cluster_model::placement::Placement;
use cluster_model::predict::{Prediction, predict_each};
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimName};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns the plan with the claim that is best now. `created` returns how many pods got
/// a template so recently that their claims may be missing in the view.
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
    let loads: Vec<_> = plan
        .pins
        .iter()
        .map(|pin| {
            let ClaimCounts { open, all } =
                claims.get(pin.template.as_str()).copied().unwrap_or_default();
            let created = created(&pin.template);
            let waiting = open.max(created);
            let room = room(pin, placement, view).saturating_sub(waiting);
            Load { room, waiting, pods: all.max(created) }
        })
        .collect();
    let index = best(&plan.pins, &loads).unwrap_or_default();
    plan.pinned(index)
}

/// Supply of and demand for one claim.
#[derive(Clone, Copy)]
struct Load {
    /// Nodes that can serve one more pod with this claim.
    room: usize,
    /// Pods that wait with this claim.
    waiting: usize,
    /// All pods that have this claim.
    pods: usize,
}

/// Chooses the pinned claim with most room and, among these, the fewest pods. If none has
/// room: the claim for any devices, if there is one, otherwise the pinned claim with the
/// fewest waiting pods. The first one wins ties.
fn best(pins: &[Pin], loads: &[Load]) -> Option<usize> {
    let near = (0..pins.len()).filter(|index| pins[*index].place.is_some());
    let free = near.clone().filter(|index| loads[*index].room > 0);
    free.min_by_key(|index| (Reverse(loads[*index].room), loads[*index].pods))
        .or_else(|| pins.iter().position(|pin| pin.place.is_none()))
        .or_else(|| near.min_by_key(|index| loads[*index].waiting))
}

/// Returns the plan with the claim of this template, if it is one of the plan's claims.
pub(crate) fn kept(plan: &Plan, template: &str) -> Option<Plan> {
    let index = plan.pins.iter().position(|pin| pin.template == template)?;
    Some(plan.clone().pinned(index))
}

/// For a pod that waits with the claim of this template: the cells that it waits for, and
/// other cells that are free.
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
    let others = plan.pins.iter().filter(|pin| pin.place.is_some());
    let mut others = others.filter(|pin| pin.template != template);
    Some((
        place,
        others
            .find(|pin| {
                let claims = claims.get(pin.template.as_str()).copied().unwrap_or_default();
                room(pin, placement, view) > claims.open
            })?
            .place
            .as_deref()?,
    ))
}

/// How many nodes can serve a claim now, according to the scheduler's allocator.
fn room(pin: &Pin, placement: &Placement, view: &ClusterView) -> usize {
    with_room(&pin.claim, placement, view)
        .into_iter()
        .filter(|node| {
            let mut label = pin.node_label.iter();
            label.all(|(name, value)| view.node_label(node, name) == Some(value))
        })
        .count()
}

/// The nodes that can serve a claim now, according to the scheduler's allocator.
pub(crate) fn with_room<'v>(
    claim: &ResourceClaimSpec,
    placement: &Placement,
    view: &'v ClusterView,
) -> Vec<&'v str> {
    let Ok(claim) = Claim::from_spec(ClaimName::new("", "plan"), claim) else { return Vec::new() };
    let nodes = placement.nodes(view).filter(|node| !view.is_remembered(node));
    let state = view.inventory().state();
    let found = predict_each(view, nodes, &[claim], state, &|| false);
    let fits = found.into_iter().filter(|(_, it)| matches!(it, Prediction::Fits(_)));
    fits.map(|(node, _)| node).collect()
}

/// Number of claims that were created from a template.
#[derive(Clone, Copy, Default)]
struct ClaimCounts {
    /// Claims without allocated devices.
    open: usize,
    all: usize,
}

/// Claim counts per template, over all namespaces: equal names mean equal content.
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
