//! Finds requests that no node has enough devices for, each considered alone.

use super::selectors::place;
use super::supply::{NodeSupply, Part, Supply};
use super::{Check, Finding, Severity, quoted};
use crate::wording::count;
use dra_allocator::claim::AllocationMode;

pub(super) fn check(supply: &Supply<'_>) -> Vec<Finding> {
    let parts = supply.parts.iter().enumerate();
    parts.filter_map(|(index, part)| never_enough(supply, index, part)).collect()
}

fn never_enough(supply: &Supply<'_>, index: usize, part: &Part<'_>) -> Option<Finding> {
    part.class.as_ref()?;
    let checked = part.ask.selectors.iter().flatten().all(|it| it.compiled(supply.budget).is_ok());
    let failing = supply.failing.iter().any(|failing| failing.part == index);
    let most = most(supply, index);
    let needed = needed(part);
    if !checked || failing || most >= needed {
        return None;
    }
    let what = match most {
        0 => format!("selects no device here{}", first_failing_selector(supply, part)),
        most => format!(
            "asks for {needed} devices of one node, and no node has more than {most} that it \
             selects"
        ),
    };
    if part.subrequest.is_none() {
        return Some(Check::NeverEnough.found(place(part), what));
    }
    // Another alternative of the request may still be satisfiable.
    let message = format!("{what}; this alternative is never used");
    let found = Check::NeverEnough.found(place(part), message);
    Some(Finding { severity: Severity::Warning, ..found })
}

/// The most devices that a part selects on any node.
fn most(supply: &Supply<'_>, part: usize) -> usize {
    let counts = supply.nodes.iter().map(|node: &NodeSupply<'_>| node.of_part(part).count());
    counts.max().unwrap_or_default()
}

/// The fewest devices that a part needs.
pub(super) fn needed(part: &Part<'_>) -> usize {
    match part.ask.mode {
        AllocationMode::ExactCount(count) => usize::try_from(count).unwrap_or_default(),
        AllocationMode::All | AllocationMode::Unknown(_) => 1,
    }
}

/// Names the first selector that no remaining device passes.
fn first_failing_selector(supply: &Supply<'_>, part: &Part<'_>) -> String {
    let Some(class) = &part.class else { return String::new() };
    let mut left: Vec<_> = supply.nodes.iter().flat_map(|node| node.devices.clone()).collect();
    for selector in class.selectors.iter().chain(part.ask.selectors.iter().flatten()) {
        let before = left.len();
        left.retain(|device| {
            matches!(super::supply::matches(selector, device, supply), Some(Ok(true)))
        });
        if left.is_empty() && before > 0 {
            return format!(
                ": {} is false for {}",
                quoted(selector.expression()),
                match before {
                    1 => "the 1 device that passes the selectors before it".to_owned(),
                    many =>
                        format!("all {} that pass the selectors before it", count(many, "device")),
                }
            );
        }
    }
    String::new()
}
