//! What fails for each request, in words for people.

use crate::explain::{Failure, RequestReport, ValueCounts, short};

/// One line for each request; alternatives that fail alike share one. Requests of a class without
/// devices come first: while there are none, nothing else would help.
///
/// Leaves out alternatives for other machines: those whose selector too few devices pass, while
/// there is another alternative whose selector enough devices pass.
pub fn reasons(reports: &[RequestReport]) -> Vec<String> {
    let mut lines: Vec<(&str, String, usize)> = Vec::new();
    let failed = reports.iter().filter(|report| report.failure.is_some());
    let failed = failed.filter(|report| {
        let mut others = reports.iter().filter(|other| is_of_same_request(report, other));
        !is_by_selector(report) || others.all(is_by_selector)
    });
    let (absent, others): (Vec<_>, Vec<_>) =
        failed.partition(|report| matches!(report.failure, Some(Failure::Class { left: 0, .. })));
    for report in absent.into_iter().chain(others) {
        let request = name(report);
        let reason = reason(report);
        let known = lines.iter_mut().find(|(known, text, _)| *known == request && *text == reason);
        match known {
            Some((_, _, count)) => *count += 1,
            None => lines.push((request, reason, 1)),
        }
    }
    lines
        .into_iter()
        .map(|(request, reason, count)| match count {
            1 => format!("request {request}: {reason}"),
            count => format!("request {request}, {count} alternatives: {reason}"),
        })
        .collect()
}

/// The request's name, without that of the alternative.
fn name(report: &RequestReport) -> &str {
    report.request.split('/').next().unwrap_or_default()
}

fn is_of_same_request(one: &RequestReport, other: &RequestReport) -> bool {
    one.claim == other.claim && name(one) == name(other)
}

fn is_by_selector(report: &RequestReport) -> bool {
    matches!(report.failure, Some(Failure::Selector { .. }))
}

fn reason(report: &RequestReport) -> String {
    let why = report.failure.as_ref().map(words).unwrap_or_default();
    format!("needs {}; {why}", report.needed)
}

/// Leaves out what differs between equal nodes: which devices, and who holds them.
fn words(failure: &Failure) -> String {
    match failure {
        Failure::NoClass(class) => format!("there is no device class `{class}`"),
        Failure::NoDevices => "the node has too few devices".to_owned(),
        Failure::InUse(devices) => format!("in use: {} of the suitable ones", devices.len()),
        Failure::Capacity { left } => format!("{left} devices have the requested capacity"),
        Failure::Constraint { attribute, values } => {
            let values =
                values.iter().map(|(request, of)| format!(" {request} has {}", counts(of)));
            format!("constraint on `{attribute}` cannot be met:{}", values.collect::<String>())
        }
        Failure::Together => "can be satisfied alone, but not together with the others".to_owned(),
        Failure::Tainted(taints) => {
            let mut texts: Vec<String> =
                taints.iter().map(|(_, taint)| taint.to_string()).collect();
            texts.sort_unstable();
            texts.dedup();
            let has = if taints.len() == 1 { "has" } else { "have" };
            format!("{} {has} a taint: {}", taints.len(), texts.join(", "))
        }
        Failure::Class { class, left, .. } => {
            let is = if *left == 1 { "is" } else { "are" };
            format!("{} {is} of class `{class}`", devices(*left))
        }
        Failure::Selector { expression, part, missing, left } => {
            let of_part = if part == expression { "" } else { "part of the " };
            let part = short(part);
            match (missing.as_slice(), left) {
                ([], _) => {
                    let pass = if *left == 1 { "passes" } else { "pass" };
                    let devices = devices(*left);
                    format!("{devices} {pass} the {of_part}selector `{part}`")
                }
                (missing, 0) => format!(
                    "no device has {}, which the selector requires: `{part}`",
                    missing.join(", ")
                ),
                (missing, left) => format!(
                    "{left} pass the {of_part}selector, and none of the others \
                     has {}: `{part}`",
                    missing.join(", ")
                ),
            }
        }
        // A parser shows the place on separate lines.
        Failure::Compile { expression, error } => {
            let error = error.to_string();
            let error = error.lines().next().unwrap_or_default();
            format!("{error}, in the selector `{}`", short(expression))
        }
        Failure::Runtime { expression, device, error } => {
            format!("{error}, on device {device}, in the selector `{}`", short(expression))
        }
    }
}

/// `[0 ×1, no such attribute ×2]`.
fn counts(values: &ValueCounts) -> String {
    let texts = values.iter().map(|(value, count)| match value {
        Some(value) => format!("{value} ×{count}"),
        None => format!("no such attribute ×{count}"),
    });
    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
}

/// `1 device`, `2 devices`.
fn devices(number: usize) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} device{plural}")
}
