//! Checks classes and CEL selectors: unknown classes, expressions that do not compile,
//! and expressions that fail on a device without an attribute.

use super::supply::{Failing, Part, Supply, full_name, matches};
use super::{Check, Finding, Severity, quoted};
use dra_allocator::Device;
use dra_allocator::cel::{CompileError, ErrorClass, Selector};
use std::collections::BTreeSet;

pub(super) fn check(supply: &Supply<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> =
        supply.parts.iter().filter_map(|it| unknown_class(supply, it)).collect();
    findings.extend(supply.parts.iter().flat_map(|part| invalid(supply, part)));
    findings.extend(supply.failing.iter().map(|failing| fails_now(supply, failing)));
    findings.extend(fail_later(supply));
    findings
}

fn unknown_class(supply: &Supply<'_>, part: &Part<'_>) -> Option<Finding> {
    if part.class.is_some() {
        return None;
    }
    let there: BTreeSet<_> = supply.view.inventory().class_names().map(|name| &**name).collect();
    let there: Vec<_> = there.into_iter().collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let message = format!(
        "there is no DeviceClass `{}`, so the pod waits for it; the cluster has {there}",
        part.ask.class
    );
    Some(Check::UnknownClass.found(place(part), message))
}

fn invalid(supply: &Supply<'_>, part: &Part<'_>) -> Vec<Finding> {
    let own = part.ask.selectors.iter().flatten();
    let wrong = own.filter_map(|selector| match selector.compiled(supply.budget) {
        Err(CompileError::Invalid(why)) => Some((selector, why)),
        // An expression that only this evaluator does not support may be valid.
        Ok(_) | Err(CompileError::Unsupported(_) | CompileError::OutOfBudget) => None,
    });
    wrong
        .map(|(selector, why)| {
            let message = format!(
                "{} is not a valid CEL expression: {}",
                quoted(selector.expression()),
                why.lines().next().unwrap_or_default()
            );
            Check::InvalidSelector.found(place(part), message)
        })
        .collect()
}

fn fails_now(supply: &Supply<'_>, failing: &Failing<'_>) -> Finding {
    let Failing { part, class, selector, device, node, error } = failing;
    let part = &supply.parts[*part];
    let owner = match class {
        Some(class) => format!(" of DeviceClass `{class}`"),
        None => String::new(),
    };
    let tests_driver = selector.expression().contains("device.driver");
    let remedy = match (error.class, class) {
        (ErrorClass::NoSuchKey, Some(_)) if tests_driver => "; write `.?name.orValue(…)` there",
        (ErrorClass::NoSuchKey, Some(_)) => "; fix the class: test `device.driver` first",
        (ErrorClass::NoSuchKey, None) => "; write `.?name.orValue(…)`",
        _ => "",
    };
    let message = format!(
        "{}{owner} fails on device {} of node {node} ({error}), which aborts scheduling of the pod \
         on every node{remedy}",
        quoted(selector.expression()),
        device.id().device,
    );
    Check::UnguardedSelector.found(place(part), message)
}

/// Selectors that would fail on a future device without an attribute that all devices
/// have now.
fn fail_later(supply: &Supply<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, part) in supply.parts.iter().enumerate() {
        for selector in part.ask.selectors.iter().flatten().filter(|it| !is_failing(supply, it)) {
            let Some(attribute) = unguarded(supply, index, selector) else { continue };
            let message = format!(
                "{} fails on a device without `{attribute}`: all have it now, but the first without \
                 it aborts scheduling of the pod on every node; write `.?name.orValue(…)`",
                quoted(selector.expression()),
            );
            let found = Check::UnguardedSelector.found(place(part), message);
            findings.push(Finding { severity: Severity::Warning, ..found });
        }
    }
    findings
}

/// Whether a selector fails on a device that is there now.
fn is_failing(supply: &Supply<'_>, selector: &Selector) -> bool {
    supply.failing.iter().any(|it| it.selector.expression() == selector.expression())
}

/// An attribute whose absence would make the selector fail on a device that reaches it.
fn unguarded(supply: &Supply<'_>, part: usize, selector: &Selector) -> Option<String> {
    let mut seen = BTreeSet::new();
    let devices = supply.nodes.iter().flat_map(|node| &node.devices);
    for device in devices.filter(|device| reaches(supply, part, selector, device)) {
        for (name, _) in device.attributes().filter(|_| !supply.budget.is_spent()) {
            let id = name.as_str().rsplit('/').next().unwrap_or_default();
            let asked = selector.expression().contains(id);
            if !asked || !seen.insert((device.id().driver.clone(), name.clone())) {
                continue;
            }
            let bare = device.without_attribute(name.as_str());
            if matches(selector, &bare, supply).is_some_and(|verdict| verdict.is_err()) {
                return Some(full_name(device, name.as_str()));
            }
        }
    }
    None
}

/// Whether the device passes all selectors before this one.
fn reaches(supply: &Supply<'_>, part: usize, selector: &Selector, device: &Device) -> bool {
    let Part { ask, class, .. } = &supply.parts[part];
    let Some(class) = class else { return false };
    let own = ask.selectors.iter().flatten();
    let own = own.take_while(|it| it.expression() != selector.expression());
    class
        .selectors
        .iter()
        .chain(own)
        .all(|before| matches!(matches(before, device, supply), Some(Ok(true))))
}

pub(super) fn place(part: &Part<'_>) -> String {
    format!("request `{}`", part.name)
}
