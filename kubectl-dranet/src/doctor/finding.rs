//! One thing to mend.

use admission::lint::Severity;
use std::collections::BTreeSet;

/// Nodes that a finding names; the others are counted.
const NAMED_MAX: usize = 3;

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterFinding {
    /// How bad it is.
    pub(crate) severity: Severity,
    /// Which object, or which nodes.
    pub(crate) place: String,
    /// What is wrong with it, and what to do: the rest of the sentence.
    pub(crate) message: String,
}

impl ClusterFinding {
    pub(super) fn new(
        severity: Severity,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity, place: place.into(), message: message.into() }
    }

    /// One warning on all of these nodes, if there are any: what one of them does, or
    /// several do.
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
