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
        Failure::Selector { part, missing, left, .. }
            if missing.is_empty() && listed(part).is_some() =>
        {
            let (attribute, values) = listed(part).unwrap_or_default();
            let found = match left {
                0 => "no device has".to_owned(),
                1 => "1 device has".to_owned(),
                left => format!("{left} devices have"),
            };
            let first = values.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = match values.len().saturating_sub(LISTED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{found} a {attribute} that the claim lists: {first}{more}")
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

/// The most values of a list that are named.
const LISTED_MAX: usize = 4;

/// The attribute and the values of a selector that lists values of an attribute:
/// `device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") in ["0101:00:00.0"]`.
fn listed(part: &str) -> Option<(String, Vec<&str>)> {
    let rest = part.trim().strip_prefix("device.attributes[\"")?;
    let (domain, rest) = rest.split_once("\"].")?;
    let (name, list) = rest.split_once(" in [")?;
    let name = name.trim_start_matches('?');
    let name = name.strip_suffix(".orValue(\"\")").unwrap_or(name);
    let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    let values = list.strip_suffix(']').filter(|_| is_name)?.split(", ");
    let values: Option<Vec<&str>> = values
        .map(|value| value.strip_prefix('"')?.strip_suffix('"').filter(|it| !it.contains('"')))
        .collect();
    Some((format!("{domain}/{name}"), values?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_values_are_read() {
        let name = "resource.kubernetes.io/pciBusID".to_owned();
        for (part, expected) in [
            (
                r#"device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") in ["a", "b"]"#,
                Some((name.clone(), vec!["a", "b"])),
            ),
            (
                r#"device.attributes["resource.kubernetes.io"].pciBusID in ["a"]"#,
                Some((name, vec!["a"])),
            ),
            (r#"device.attributes["std.io"].numa == 2"#, None),
            (r#"device.attributes["std.io"].numa in [1, 2]"#, None),
            (r#"device.attributes["a"].b.lowerAscii() in ["c"]"#, None),
            (r#"device.attributes["a"].b in ["c"] || true"#, None),
            (r#"device.attributes["a"].b in ["c", "d" + "e"]"#, None),
        ] {
            assert_eq!(listed(part), expected, "{part}");
        }
    }
}
