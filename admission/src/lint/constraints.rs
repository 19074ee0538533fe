//! Finds constraints that can never hold in this cluster, and those that always hold.
//!
//! A constraint on only some alternatives of a request is left to the search: that it
//! cannot hold may be intended, to keep two alternatives apart.

use super::counts::needed;
use super::supply::{NodeSupply, Supply, full_name};
use super::{Check, Finding};
use crate::plan::FABRIC_ATTRIBUTES;
use crate::wording::count;
use cluster_model::names::annotation;
use dra_allocator::claim::{Constraint, ConstraintKind};
use dra_allocator::{AttributeValue, Device};
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

/// The most values per request that a finding lists.
const VALUES_SHOWN: usize = 3;

/// A request that a constraint covers with all its alternatives.
struct Bound<'a> {
    name: &'a str,
    parts: Vec<usize>,
    /// The fewest devices that it needs.
    needed: usize,
}

pub(super) fn check(supply: &Supply<'_>) -> Vec<Finding> {
    let constraints = supply.claim.constraints.iter().enumerate();
    constraints
        .filter_map(|(index, constraint)| {
            let bound = bound(supply, constraint)?;
            let place = match constraint.kind.attribute() {
                Some(attribute) => format!("constraint #{index} on `{attribute}`"),
                None => format!("constraint #{index}"),
            };
            match &constraint.kind {
                ConstraintKind::Match(attribute) => one_value(supply, &bound, attribute, place),
                ConstraintKind::Distinct(attribute) => distinct(supply, &bound, attribute, place),
                ConstraintKind::Unknown => None,
            }
        })
        .collect()
}

/// The requests that the constraint covers. `None` if it covers only a part of one, or if
/// a list or an empty request leaves nothing to compare.
fn bound<'a>(supply: &'a Supply<'_>, constraint: &Constraint) -> Option<Vec<Bound<'a>>> {
    let bound = requests(supply, supply.bound(constraint));
    let are_whole = bound.iter().all(|it| {
        let all = supply.parts.iter().filter(|part| part.request == it.name).count();
        it.parts.len() == all
    });
    let attribute = constraint.kind.attribute()?;
    let lists = bound.iter().any(|it| {
        let mut values = everywhere(supply, it).filter_map(|device| device.attribute(attribute));
        values.any(AttributeValue::is_list)
    });
    let some = bound.iter().all(|it| everywhere(supply, it).next().is_some());
    (are_whole && some && !lists && !bound.is_empty()).then_some(bound)
}

/// The requests of these parts.
fn requests<'a>(supply: &'a Supply<'_>, parts: impl Iterator<Item = usize>) -> Vec<Bound<'a>> {
    let mut bound: Vec<Bound<'a>> = Vec::new();
    for index in parts {
        let part = &supply.parts[index];
        if let Some(known) = bound.iter_mut().find(|known| known.name == part.request) {
            known.parts.push(index);
            known.needed = known.needed.min(needed(part));
        } else {
            bound.push(Bound { name: part.request, parts: vec![index], needed: needed(part) });
        }
    }
    bound
}

fn one_value(
    supply: &Supply<'_>,
    bound: &[Bound<'_>],
    attribute: &str,
    place: String,
) -> Option<Finding> {
    if let Some(why) = why_never(supply, bound, attribute) {
        let message = format!("{why}, so the pod stays Pending{}", remedy(supply, bound));
        return Some(Check::NeverHolds.found(place, message));
    }
    let mut enough = supply.nodes.iter().filter(|node| is_enough(node, bound));
    enough
        .all(|node| {
            let values: BTreeSet<_> =
                chosen(node, bound).map(|it| it.attribute(attribute)).collect();
            values.len() == 1 && !values.contains(&None)
        })
        .then(|| always(bound, attribute, place))
}

/// Why no choice of devices has one value of the attribute, if none has.
fn why_never(supply: &Supply<'_>, bound: &[Bound<'_>], attribute: &str) -> Option<String> {
    let mut lacking = bound
        .iter()
        .filter(|it| everywhere(supply, it).all(|device| device.attribute(attribute).is_none()));
    if let Some(it) = lacking.next() {
        return Some(format!("no device of request `{}` publishes it", it.name));
    }
    if supply.nodes.iter().any(|node| can_hold(node, bound, attribute)) {
        return None;
    }
    let values = bound.iter().map(|it| format!("`{}` {}", it.name, values(supply, it, attribute)));
    let wanted = bound.iter().map(|it| format!("{} of `{}`", it.needed, it.name));
    Some(format!(
        "no node has one value of it on {} (published are: {})",
        wanted.collect::<Vec<_>>().join(" and "),
        values.collect::<Vec<_>>().join("; ")
    ))
}

fn always(bound: &[Bound<'_>], attribute: &str, place: String) -> Finding {
    let single = bound.iter().map(|it| it.needed).sum::<usize>() <= 1;
    let message = if FABRIC_ATTRIBUTES.contains(&attribute) {
        format!(
            "always true: the devices of a claim come from one node, whose NICs have one value; to \
             keep the pods of a job on one fabric use the annotation {}",
            annotation::FABRIC
        )
    } else if single {
        "always true: it applies to only one device".to_owned()
    } else {
        "always true here: on every node all devices that could be chosen have one value".to_owned()
    };
    Check::AlwaysHolds.found(place, message)
}

fn distinct(
    supply: &Supply<'_>,
    bound: &[Bound<'_>],
    attribute: &str,
    place: String,
) -> Option<Finding> {
    let wanted = bound.iter().map(|it| it.needed).sum::<usize>();
    let most = supply.nodes.iter().map(|node| values_of(node, bound, attribute)).max();
    let most = most.unwrap_or_default();
    if most < wanted {
        let message = format!(
            "the requests need {} with distinct values, and no node has more than {}, so the \
             pod stays Pending",
            count(wanted, "device"),
            count(most, "value")
        );
        return Some(Check::NeverHolds.found(place, message));
    }
    let mut nodes = supply.nodes.iter();
    nodes.all(|node| values_of(node, bound, attribute) == chosen(node, bound).count()).then(|| {
        let why = "always true here: on every node, all devices have distinct values";
        Check::AlwaysHolds.found(place, why)
    })
}

/// Whether one value is on enough devices for all requests together, each device counted
/// once.
fn can_hold(node: &NodeSupply<'_>, bound: &[Bound<'_>], attribute: &str) -> bool {
    let mut of_value: BTreeMap<&AttributeValue, Vec<&Device>> = BTreeMap::new();
    for device in chosen(node, bound) {
        if let Some(value) = device.attribute(attribute) {
            of_value.entry(value).or_default().push(device);
        }
    }
    let wanted = bound.iter().map(|it| it.needed).sum::<usize>();
    of_value.iter().any(|(value, devices)| {
        devices.len() >= wanted
            && bound.iter().all(|it| {
                let all = of_request(node, it);
                let having = all.filter(|device| device.attribute(attribute) == Some(*value));
                having.count() >= it.needed
            })
    })
}

fn is_enough(node: &NodeSupply<'_>, bound: &[Bound<'_>]) -> bool {
    bound.iter().all(|it| of_request(node, it).count() >= it.needed)
}

/// The node's devices that the covered requests could take, each once.
fn chosen<'a>(node: &NodeSupply<'a>, bound: &[Bound<'_>]) -> impl Iterator<Item = &'a Device> {
    let devices = node.devices.iter().enumerate().filter(|(index, _)| {
        bound.iter().flat_map(|it| &it.parts).any(|part| node.passing[*part][*index])
    });
    devices.map(|(_, device)| *device)
}

fn of_request<'a>(node: &NodeSupply<'a>, it: &Bound<'_>) -> impl Iterator<Item = &'a Device> {
    chosen(node, slice::from_ref(it))
}

fn everywhere<'a>(supply: &Supply<'a>, it: &Bound<'_>) -> impl Iterator<Item = &'a Device> {
    supply.nodes.iter().flat_map(|node| of_request(node, it))
}

fn values(supply: &Supply<'_>, it: &Bound<'_>, attribute: &str) -> String {
    let values: BTreeSet<_> =
        everywhere(supply, it).filter_map(|device| device.attribute(attribute)).collect();
    let shown: Vec<_> = values.iter().take(VALUES_SHOWN).map(ToString::to_string).collect();
    let more = if values.len() > VALUES_SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Suggests an attribute that would tie the same devices, if there is one.
fn remedy(supply: &Supply<'_>, bound: &[Bound<'_>]) -> String {
    if bound.first().is_none_or(|it| everywhere(supply, it).next().is_none()) {
        return String::new();
    }
    match tie_of(supply, bound) {
        Some(name) => format!("; `{name}` could hold here"),
        None => format!(
            "; the annotation {} makes a claim that holds here, or says why none can",
            annotation::ALIGNED_NICS
        ),
    }
}

/// An attribute that would tie devices of these parts on some node.
pub(super) fn tie(supply: &Supply<'_>, parts: impl Iterator<Item = usize>) -> Option<String> {
    tie_of(supply, &requests(supply, parts))
}

fn tie_of(supply: &Supply<'_>, bound: &[Bound<'_>]) -> Option<String> {
    let first = everywhere(supply, bound.first()?).next()?;
    let names = first.attributes().map(|(name, _)| full_name(first, name.as_str()));
    names.into_iter().find(|name| {
        supply.nodes.iter().any(|node| can_hold(node, bound, name))
            && supply.nodes.iter().any(|node| values_of(node, bound, name) > 1)
    })
}

fn values_of(node: &NodeSupply<'_>, bound: &[Bound<'_>], attribute: &str) -> usize {
    let values: BTreeSet<_> =
        chosen(node, bound).filter_map(|device| device.attribute(attribute)).collect();
    values.len()
}
