//! Problems of the cluster that need fixing.

use crate::answer::{DoctorFinding, Severity};
use crate::text::in_plural;
use std::collections::{BTreeMap, BTreeSet};

/// The most objects that a finding names; the others are counted.
const NAMED_MAX: usize = 3;

/// What a check has found so far.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<DoctorFinding>);

impl Findings {
    /// A finding whose message continues the sentence that starts with the place.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        place: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.0.push(DoctorFinding { severity, place: place.into(), message: message.into() });
    }

    pub(super) fn error(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Error, place, message);
    }

    pub(super) fn warning(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Warning, place, message);
    }

    pub(super) fn note(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Note, place, message);
    }

    /// A warning about all of these nodes, if there are any. The message is written for one node.
    pub(super) fn on(&mut self, nodes: &BTreeSet<&str>, message: impl Into<String>) {
        match nodes.len() {
            0 => {}
            1 => self.warning(format!("node {}", named(nodes)), message),
            _ => self.warning(format!("nodes {}", named(nodes)), in_plural(&message.into())),
        }
    }

    /// A warning about the nodes of each key.
    pub(super) fn on_each<K>(
        &mut self,
        found: BTreeMap<K, BTreeSet<&str>>,
        message: impl Fn(K) -> String,
    ) {
        for (key, nodes) in found {
            self.on(&nodes, message(key));
        }
    }
}

/// `a`, `a, b, c and 2 more`.
pub(super) fn named<T: AsRef<str>>(names: &BTreeSet<T>) -> String {
    let first: Vec<_> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
