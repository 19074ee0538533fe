//! A problem of the cluster that needs fixing.

use crate::answer::{DoctorFinding, Severity};
use std::collections::BTreeSet;

/// The most nodes that a finding names; the others are counted.
const NAMED_MAX: usize = 3;

impl DoctorFinding {
    /// A finding whose message continues the sentence that starts with the place.
    pub(super) fn new(
        severity: Severity,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity, place: place.into(), message: message.into() }
    }

    /// A warning about all of these nodes, if there are any. It has a text for one node
    /// and a text for several.
    pub(super) fn on(
        nodes: &BTreeSet<&str>,
        (does, do_): (&str, &str),
        what: &str,
    ) -> Option<Self> {
        let more = nodes.len().saturating_sub(NAMED_MAX);
        let named: Vec<_> = nodes.iter().take(NAMED_MAX).copied().collect();
        let (kind, verb) = if nodes.len() == 1 { ("node", does) } else { ("nodes", do_) };
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        let place = format!("{kind} {}{tail}", named.join(", "));
        let message = format!("{verb} {what}");
        (!nodes.is_empty()).then(|| Self::new(Severity::Warning, place, message))
    }
}
