//! The conditions of a graph: whether it is complete and consistent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use std::collections::BTreeMap;

use super::NodeTopologySpec;
use crate::{Anomaly, AnomalyKind};

/// A condition: its type, whether a kind of anomaly makes it false, and its reason if none does.
type Kind = (&'static str, fn(AnomalyKind) -> bool, &'static str);

const CONDITIONS: [Kind; 2] =
    [("Complete", is_gap, "AllKnown"), ("Consistent", is_contradiction, "AllAgree")];

/// A condition of the machine's kernel, which the driver reports next to its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCondition {
    /// Its type, in `CamelCase`.
    pub kind: &'static str,
    /// True if it holds.
    pub holds: bool,
    /// The reason, in `CamelCase`.
    pub reason: &'static str,
    /// The reason, as text for people.
    pub message: String,
    /// What the condition is about, one by one; the message then lists it, each with the time since
    /// which it is so.
    pub entries: Vec<String>,
}

/// The most entries that a message lists.
const ENTRIES_MAX: usize = 40;

/// Between an entry and its time, and between two entries.
const SINCE: &str = " since ";
const AND: &str = "; ";

/// The conditions of a graph and of the machine's kernel. A condition whose status is unchanged keeps
/// its transition time; otherwise the time is `now`.
pub fn conditions(
    spec: &NodeTopologySpec,
    host: &[HostCondition],
    before: &[Condition],
    now: &Time,
) -> Vec<Condition> {
    let of_graph = CONDITIONS.into_iter().map(|(kind, is_against, reason)| {
        let against: Vec<_> =
            spec.anomalies.iter().filter(|anomaly| is_against(anomaly.kind)).collect();
        HostCondition {
            kind,
            holds: against.is_empty(),
            reason: against.first().map_or(reason, |anomaly| word(anomaly.kind)),
            message: message(&against),
            entries: Vec::new(),
        }
    });
    let all = of_graph.chain(host.iter().cloned());
    all.map(|HostCondition { kind, holds, reason, message, entries }| {
        let last = before.iter().find(|condition| condition.type_ == kind);
        let said = last.map(|last| last.message.as_str()).unwrap_or_default();
        let message = if entries.is_empty() { message } else { timed(&entries, said, now) };
        let status = if holds { "True" } else { "False" };
        let since = last.filter(|last| last.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since
                .map_or_else(|| now.clone(), |since| since.last_transition_time.clone()),
            observed_generation: None,
        }
    })
    .collect()
}

/// Each entry with its time: that of the former message if it had the entry, otherwise now.
fn timed(entries: &[String], before: &str, now: &Time) -> String {
    let now = now.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let known: BTreeMap<&str, &str> =
        before.split(AND).filter_map(|entry| entry.rsplit_once(SINCE)).collect();
    let listed = entries.iter().take(ENTRIES_MAX).map(|entry| {
        let since = known.get(entry.as_str()).copied().unwrap_or(&now);
        format!("{entry}{SINCE}{since}")
    });
    let more = entries.len().saturating_sub(ENTRIES_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    listed.chain(more).collect::<Vec<_>>().join(AND)
}

/// The first anomaly, and the number of further ones.
fn message(against: &[&Anomaly]) -> String {
    match against {
        [] => String::new(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first}; and {} more", rest.len()),
    }
}

fn is_gap(kind: AnomalyKind) -> bool {
    use AnomalyKind::{Malformed, NumaUnknown, RoleUnknown, Unreadable};
    matches!(kind, Unreadable | Malformed | NumaUnknown | RoleUnknown)
}

fn is_contradiction(kind: AnomalyKind) -> bool {
    use AnomalyKind::{
        GpuAbsent, GpuLinksDisagree, NumaAbsent, NumaDisagrees, OverlayDeviceMissing,
        SwitchDisagrees,
    };
    matches!(
        kind,
        GpuAbsent
            | GpuLinksDisagree
            | NumaAbsent
            | NumaDisagrees
            | OverlayDeviceMissing
            | SwitchDisagrees
    )
}

/// The reason: one word, as Kubernetes requires.
fn word(kind: AnomalyKind) -> &'static str {
    match kind {
        AnomalyKind::Unreadable => "Unreadable",
        AnomalyKind::Malformed => "Malformed",
        AnomalyKind::NumaUnknown => "NumaUnknown",
        AnomalyKind::NumaAbsent => "NumaAbsent",
        AnomalyKind::NumaWithoutCpus => "NumaWithoutCpus",
        AnomalyKind::NumaDisagrees => "NumaDisagrees",
        AnomalyKind::SwitchDisagrees => "SwitchDisagrees",
        AnomalyKind::GpuLinksDisagree => "GpuLinksDisagree",
        AnomalyKind::OverlayDeviceMissing => "OverlayDeviceMissing",
        AnomalyKind::RoleUnknown => "RoleUnknown",
        AnomalyKind::GpuAbsent => "GpuAbsent",
        AnomalyKind::LinkDegraded => "LinkDegraded",
        AnomalyKind::Other => "Other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        serde_json::from_value(text.into()).unwrap()
    }

    fn spec(kinds: &[AnomalyKind]) -> NodeTopologySpec {
        let anomalies = kinds.iter().map(|kind| Anomaly::new(*kind, "a", "b")).collect();
        NodeTopologySpec { anomalies, ..NodeTopologySpec::default() }
    }

    fn words(conditions: &[Condition]) -> Vec<String> {
        let word = |c: &Condition| format!("{} {} {} {}", c.type_, c.status, c.reason, c.message);
        conditions.iter().map(word).collect()
    }

    #[test]
    fn each_condition_has_its_anomalies() {
        let now = at("2026-01-01T00:00:00Z");
        let of = |kinds: &[AnomalyKind]| words(&conditions(&spec(kinds), &[], &[], &now));
        assert_eq!(of(&[]), ["Complete True AllKnown ", "Consistent True AllAgree "]);
        // A degraded link affects neither.
        assert_eq!(of(&[AnomalyKind::LinkDegraded]), of(&[]));
        assert_eq!(
            of(&[AnomalyKind::NumaUnknown, AnomalyKind::NumaDisagrees, AnomalyKind::NumaUnknown]),
            ["Complete False NumaUnknown a: b; and 1 more", "Consistent False NumaDisagrees a: b"]
        );
    }

    #[test]
    fn host_conditions_are_listed_after_those_of_the_graph() {
        let host = HostCondition {
            kind: "KernelModules",
            holds: false,
            reason: "Absent",
            message: "irdma is absent".to_owned(),
            entries: vec![],
        };
        let words = words(&conditions(&spec(&[]), &[host], &[], &at("2026-01-01T00:00:00Z")));
        assert_eq!(words[2], "KernelModules False Absent irdma is absent");
    }

    #[test]
    fn each_entry_keeps_its_time() {
        let (first, second) = (at("2026-01-01T00:00:00.5Z"), at("2026-01-02T00:00:00Z"));
        let host = |entries: &[&str]| HostCondition {
            kind: "NICsHealthy",
            holds: false,
            reason: "PortDown",
            message: String::new(),
            entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
        };
        let said = |entries: &[&str], before: &[Condition], now: &Time| {
            conditions(&spec(&[]), &[host(entries)], before, now)
        };
        let before = said(&["a: port-down", "b: gone"], &[], &first);
        assert_eq!(
            before[2].message,
            "a: port-down since 2026-01-01T00:00:00Z; b: gone since 2026-01-01T00:00:00Z"
        );
        assert_eq!(said(&["a: port-down", "b: gone"], &before, &second), before);
        let after = said(&["b: gone", "c: gone"], &before, &second);
        assert_eq!(
            after[2].message,
            "b: gone since 2026-01-01T00:00:00Z; c: gone since 2026-01-02T00:00:00Z"
        );
        let many: Vec<_> = (0..50).map(|number| format!("{number}: gone")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let message = said(&many, &[], &first).remove(2).message;
        assert!(message.ends_with("; and 10 more"), "{message}");
    }

    #[test]
    fn the_transition_time_is_that_of_the_last_change() {
        let (first, second) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let before = conditions(&spec(&[]), &[], &[], &first);
        assert_eq!(conditions(&spec(&[]), &[], &before, &second), before);
        let after = conditions(&spec(&[AnomalyKind::NumaUnknown]), &[], &before, &second);
        let times: Vec<_> = after.iter().map(|c| c.last_transition_time.clone()).collect();
        assert_eq!(times, [second, first]);
    }
}
