//! Checks a hand-written claim for problems that the scheduler would otherwise reveal pod
//! by pod.
//!
//! A pure function of the claim and the cluster. It follows the scheduler's allocator:
//! evaluates selectors on every published device, runs the search, and tries constraints
//! with the nodes' real devices. Rules that hold for all claims are left to the API
//! server.

mod config;
mod constraints;
mod counts;
mod near;
mod search;
mod selectors;
mod supply;

use cluster_model::view::ClusterView;
use dra_allocator::{Budget, Claim, ClaimName, WireError};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::cmp::Reverse;
use std::fmt;
use supply::Supply;

/// Longest part of an expression or list that a finding quotes, in characters.
const QUOTED_MAX: usize = 60;

/// The place of a finding on the whole claim.
const WHOLE: &str = "claim";

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The claim does less than it seems to, or could do the same at lower cost.
    Note,
    /// It works now, but may stop working.
    Warning,
    /// With the current cluster, no pod with this claim can be scheduled.
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

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// A DeviceClass does not exist.
    UnknownClass,
    /// A CEL expression does not compile.
    InvalidSelector,
    /// A CEL expression fails on a device, which aborts scheduling of the pod on all
    /// nodes.
    UnguardedSelector,
    /// No node has the devices for a request.
    NeverEnough,
    /// No choice of devices satisfies a constraint.
    NeverHolds,
    /// Every choice of devices satisfies a constraint.
    AlwaysHolds,
    /// The search takes the scheduler too long.
    OverBudget,
    /// Nothing keeps GPUs and NICs near each other.
    NotNear,
    /// The driver would refuse the configuration on the node.
    RefusedConfig,
    /// Each request can be satisfied alone, but not all together.
    NeverTogether,
    /// The expressions take too long to evaluate here.
    NotChecked,
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
            Self::NotNear => "not-near",
            Self::RefusedConfig => "refused-config",
            Self::NeverTogether => "never-together",
            Self::NotChecked => "not-checked",
        }
    }

    /// How severe it is, unless the claim says that it is meant.
    fn severity(self) -> Severity {
        match self {
            Self::AlwaysHolds | Self::NotChecked => Severity::Note,
            Self::OverBudget | Self::NotNear => Severity::Warning,
            Self::UnknownClass
            | Self::InvalidSelector
            | Self::UnguardedSelector
            | Self::NeverEnough
            | Self::NeverHolds
            | Self::RefusedConfig
            | Self::NeverTogether => Severity::Error,
        }
    }

    /// A finding of this kind at a place in the claim.
    fn found(self, place: impl Into<String>, message: impl Into<String>) -> Finding {
        let (place, message) = (place.into(), message.into());
        Finding { check: self, severity: self.severity(), place, message }
    }
}

/// One problem of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub check: Check,
    /// Its severity.
    pub severity: Severity,
    /// Where it is in the claim: a request, a constraint, or the whole claim.
    pub place: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Findings on a claim, the most severe first. `max_steps` is the search limit per node, `budget`
/// the limit of all expressions and searches. If it does not suffice, the only finding besides those
/// on configuration says so: what was found with a part of the devices may be wrong.
///
/// # Errors
/// The claim contains an invalid quantity.
pub fn lint(
    claim: &ResourceClaimSpec,
    view: &ClusterView,
    max_steps: u64,
    budget: &Budget<'_>,
) -> Result<Vec<Finding>, WireError> {
    let parsed = Claim::from_spec(ClaimName::new("", "linted"), claim)?;
    let mut findings = config::check(&parsed);
    let supply = Supply::new(&parsed, view, budget);
    let mut found = selectors::check(&supply);
    found.extend(counts::check(&supply));
    found.extend(constraints::check(&supply));
    // The search is only meaningful if each part can be satisfied alone.
    if found.iter().chain(&findings).all(|finding| finding.severity < Severity::Error) {
        found.extend(search::check(&supply, max_steps));
        found.extend(near::check(&supply));
    }
    if budget.is_spent() {
        found = vec![not_checked()];
    }
    findings.extend(found);
    findings.sort_by_key(|finding| Reverse(finding.severity));
    Ok(findings)
}

fn not_checked() -> Finding {
    let why = "not checked against the cluster's devices: its CEL expressions or the search for \
               devices take too long to try here; use simpler expressions";
    Check::NotChecked.found(WHOLE, why)
}

/// The text on one line, cut if it is too long for a warning.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("`{}…`", line[..end].trim_end()),
        None => format!("`{line}`"),
    }
}
