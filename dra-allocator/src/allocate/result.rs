//! Writes the solution as Kubernetes writes it into claims.
//!
//! Follows the second half of `Allocate`, and `createNodeSelector`, in `allocator_*.go`.

use std::iter;
use std::sync::Arc;

use super::error::{AllocateError, Failure};
use super::problem::{PreparedAsk, PreparedClaim, Problem};
use super::search::{Chosen, Solution};
use crate::allocation::{ClaimAllocation, ConfigResult, ConfigSource, DeviceResult};
use crate::claim::Claim;
use crate::node::{NodeSelector, NodeSelectorTerm, NodeTarget, Requirement};
use crate::slice::SliceTarget;

/// Writes the allocations of all claims.
pub(super) fn write(
    problem: &Problem<'_>,
    solution: &Solution,
) -> Result<Vec<ClaimAllocation>, Failure> {
    let mut allocations = Vec::with_capacity(problem.claims.len());
    let mut rest = &*solution.chosen;
    for (number, claim) in problem.claims.iter().enumerate() {
        let (chosen, others) = rest.split_at(
            rest.iter()
                .position(|chosen| problem.asks[chosen.ask].claim != number)
                .unwrap_or(rest.len()),
        );
        rest = others;
        let results = chosen.iter().map(|chosen| device_result(problem, solution, *chosen));
        allocations.push(ClaimAllocation {
            results: results.collect(),
            config: config(problem, claim, &solution.subrequests),
            node_selector: node_selector(problem, claim.claim, chosen)?,
        });
    }
    Ok(allocations)
}

fn device_result(problem: &Problem<'_>, solution: &Solution, chosen: Chosen) -> DeviceResult {
    let candidate = &problem.candidates[chosen.candidate];
    let device = candidate.device;
    let ask = &problem.asks[chosen.ask];
    let consumed_capacity = if chosen.is_share {
        let names = device.capacity.iter().map(|(name, _)| name.clone());
        names.zip(solution.shares.amounts(ask.equivalent, chosen.candidate)).collect()
    } else {
        Vec::new()
    };
    let (binding_conditions, binding_failure_conditions) = if problem.settings.gates.binds_devices()
    {
        (device.binding_conditions().to_vec(), device.binding_failure_conditions().to_vec())
    } else {
        Default::default()
    };
    DeviceResult {
        request: ask.full_name(),
        device: device.id.clone(),
        admin_access: ask.ask.is_admin(),
        tolerations: ask.ask.tolerations.clone(),
        is_share: chosen.is_share,
        consumed_capacity,
        binding_conditions,
        binding_failure_conditions,
        skip_node_operations: candidate.slice.skip_node_operations.clone(),
    }
}

/// The chosen alternatives, one per request.
fn chosen_asks<'p, 'a>(
    problem: &'p Problem<'a>,
    claim: &PreparedClaim<'_>,
    subrequests: &'p [usize],
) -> impl Iterator<Item = &'p PreparedAsk<'a>> {
    let requests = problem.requests_of(claim).iter().zip(&subrequests[claim.first_request..]);
    requests.map(|(request, subrequest)| &problem.asks[request.first_ask + subrequest])
}

fn config(
    problem: &Problem<'_>,
    claim: &PreparedClaim<'_>,
    subrequests: &[usize],
) -> Vec<ConfigResult> {
    let mut chosen = chosen_asks(problem, claim, subrequests);
    if claim.claim.config.is_empty() && !chosen.any(|ask| !ask.class.config.is_empty()) {
        return Vec::new();
    }
    let asks: Vec<_> = chosen_asks(problem, claim, subrequests).collect();
    let keep = problem.settings.quirks.config_requests_kept;
    let mut config = class_config(&asks);
    config.extend(claim_config(claim.claim, &asks, keep));
    if !keep {
        for result in &mut config {
            // A configuration that names all requests is written without names: it then applies to
            // all.
            if asks.iter().all(|ask| is_for(&result.requests, ask)) {
                result.requests.clear();
            }
        }
    }
    config
}

/// The configuration of classes: each class once, for all requests of that class.
fn class_config(asks: &[&PreparedAsk<'_>]) -> Vec<ConfigResult> {
    let mut done: Vec<&Arc<str>> = Vec::new();
    let mut results = Vec::new();
    for ask in asks {
        if done.contains(&&ask.class.name) {
            continue;
        }
        done.push(&ask.class.name);
        let same = asks.iter().filter(|other| other.class.name == ask.class.name);
        let requests: Vec<_> = same.map(|ask| ask.full_name()).collect();
        results.extend(ask.class.config.iter().map(|config| ConfigResult {
            source: ConfigSource::Class,
            requests: requests.clone(),
            config: config.clone(),
        }));
    }
    results
}

/// Returns true if the list names the request or the chosen subrequest.
fn is_for(requests: &[Arc<str>], ask: &PreparedAsk<'_>) -> bool {
    let request = ask.parent.unwrap_or(&ask.ask.name);
    requests.contains(request) || (ask.parent.is_some() && requests.contains(&ask.full_name()))
}

/// The claim's configuration for the chosen requests; up to 1.36 repeated for each request.
fn claim_config(claim: &Claim, asks: &[&PreparedAsk<'_>], repeat: bool) -> Vec<ConfigResult> {
    let mut results = Vec::new();
    for config in &claim.config {
        let times = if config.requests.is_empty() {
            1
        } else {
            asks.iter().filter(|ask| is_for(&config.requests, ask)).count()
        };
        let times = if repeat { times } else { times.min(1) };
        let result = ConfigResult {
            source: ConfigSource::Claim,
            requests: config.requests.clone(),
            config: config.config.clone(),
        };
        results.extend(iter::repeat_n(result, times));
    }
    results
}

/// The nodes that all devices belong to; only this node if any device is local to it.
fn node_selector(
    problem: &Problem<'_>,
    claim: &Claim,
    chosen: &[Chosen],
) -> Result<Option<NodeSelector>, Failure> {
    let mut term = NodeSelectorTerm::default();
    for chosen in chosen {
        let candidate = &problem.candidates[chosen.candidate];
        let target = match &candidate.slice.target {
            SliceTarget::Nodes(target) => Some(target),
            SliceTarget::PerDevice => candidate.device.target(),
            SliceTarget::Unknown => None,
        };
        let binds =
            candidate.device.binds_to_node() && !problem.settings.quirks.selector_from_slice;
        match target {
            Some(NodeTarget::Node(name)) if problem.settings.quirks.selector_from_slice => {
                return Ok(Some(NodeSelector::of_node(name)));
            }
            Some(NodeTarget::Node(_)) => {
                return Ok(Some(NodeSelector::of_node(&problem.node.name)));
            }
            _ if binds => return Ok(Some(NodeSelector::of_node(&problem.node.name))),
            Some(NodeTarget::Selector(selector)) => match &*selector.terms {
                [] => {}
                [only] => {
                    extend(&mut term.match_fields, &only.match_fields);
                    extend(&mut term.match_expressions, &only.match_expressions);
                }
                terms => {
                    let (claim, terms) = (claim.name.clone(), terms.len());
                    return Err(AllocateError::NodeSelectorTerms { claim, terms }.into());
                }
            },
            Some(NodeTarget::All) | None => {}
        }
    }
    let empty = term.match_fields.is_empty() && term.match_expressions.is_empty();
    Ok((!empty).then(|| NodeSelector { terms: vec![term] }))
}

fn extend(requirements: &mut Vec<Requirement>, more: &[Requirement]) {
    for requirement in more {
        if !requirements.iter().any(|known| known.is_same(requirement)) {
            requirements.push(requirement.clone());
        }
    }
}
