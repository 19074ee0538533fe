//! What a person should know of a claim that they wrote by hand, before the
//! scheduler finds it out pod by pod.
//!
//! A plain function of the claim and the cluster. It follows the scheduler's own
//! allocator: a selector is evaluated on every published device, a search is
//! run, a constraint is tried with what the nodes really have. What holds
//! whatever the claim says is the API server's to check, not ours.

mod config;
mod constraints;
mod counts;
mod search;
mod selectors;
mod supply;

use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimName, WireError};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::cmp::Reverse;
use std::fmt;
use supply::Supply;

/// Characters of an expression or a list that a finding repeats.
const QUOTED_MAX: usize = 60;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The claim does less than it looks like, or could do it for less.
    Note,
    /// It works now, and will not always.
    Warning,
    /// No pod with this claim can be scheduled here as things are.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// A DeviceClass that is not there.
    UnknownClass,
    /// An expression that is none.
    InvalidSelector,
    /// An expression that fails on a device, which ends the attempt for the pod
    /// on all nodes.
    UnguardedSelector,
    /// A request that no node has the devices for.
    NeverEnough,
    /// A constraint that no choice of devices can satisfy.
    NeverHolds,
    /// A constraint that every choice of devices satisfies.
    AlwaysHolds,
    /// A search that takes the scheduler too long.
    OverBudget,
    /// Configuration that the driver refuses on the node.
    RefusedConfig,
    /// Requests that each could be met, but not together.
    NeverTogether,
}

impl Check {
    /// Its name in output, in kebab case.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownClass => "unknown-class",
            Self::InvalidSelector => "invalid-selector",
            Self::UnguardedSelector => "unguarded-selector",
            Self::NeverEnough => "never-enough",
            Self::NeverHolds => "never-holds",
            Self::AlwaysHolds => "always-holds",
            Self::OverBudget => "over-budget",
            Self::RefusedConfig => "refused-config",
            Self::NeverTogether => "never-together",
        }
    }
}

/// One thing that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// Where in the claim it is: a request, a constraint, the whole.
    pub place: String,
    /// What is, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Findings on a claim, the worst first; `max_steps` is what a search may take
/// on one node.
///
/// # Errors
/// The claim holds an amount that is none.
pub fn lint(
    claim: &ResourceClaimSpec,
    view: &ClusterView,
    max_steps: u64,
) -> Result<Vec<Finding>, WireError> {
    let parsed = Claim::from_spec(ClaimName::new("", "linted"), claim)?;
    let supply = Supply::of(&parsed, view);
    let mut findings = config::check(&parsed);
    findings.extend(selectors::check(&supply));
    findings.extend(counts::check(&supply));
    findings.extend(constraints::check(&supply));
    // A search means something only where every single part can be met.
    if findings.iter().all(|finding| finding.severity < Severity::Error) {
        findings.extend(search::check(&supply, max_steps));
    }
    findings.sort_by_key(|finding| Reverse(finding.severity));
    Ok(findings)
}

/// The text, cut where it is too long for a warning, on one line.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("`{}…`", line[..end].trim_end()),
        None => format!("`{line}`"),
    }
}
