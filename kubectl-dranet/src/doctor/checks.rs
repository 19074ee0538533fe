//! The list of checks: what was looked at, and with which result.

use super::finding::ClusterFinding;
use admission::lint::Severity;
use serde_json::{Value, json};
use std::fmt;

/// The checks so far, and what they found.
#[derive(Debug, Default)]
pub(super) struct Checklist {
    pub(super) checks: Vec<Check>,
    pub(super) findings: Vec<ClusterFinding>,
}

/// A check.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    /// The page about what it finds.
    page: &'static str,
    result: CheckResult,
}

/// The result of a check.
#[derive(Debug)]
enum CheckResult {
    /// It found nothing, or notes only.
    Passed,
    /// It has this many findings that need fixing.
    Failed(usize),
    /// It was not checked, for this reason.
    Skipped(String),
}

impl Checklist {
    /// Adds a check with its findings.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        page: &'static str,
        findings: impl IntoIterator<Item = ClusterFinding>,
    ) {
        let before = self.findings.len();
        self.findings.extend(findings);
        let new = self.findings[before..].iter();
        let failed = new.filter(|finding| finding.severity > Severity::Note).count();
        let result = if failed == 0 { CheckResult::Passed } else { CheckResult::Failed(failed) };
        self.checks.push(Check { name, page, result });
    }

    /// The same, unless it is unknown for a reason.
    pub(super) fn known(
        &mut self,
        name: &'static str,
        page: &'static str,
        unknown: Option<&String>,
        findings: impl IntoIterator<Item = ClusterFinding>,
    ) {
        match unknown {
            Some(why) => self.skip(name, page, why),
            None => self.add(name, page, findings),
        }
    }

    /// Adds a check with its findings; if it has none, it may be unknown for a reason.
    pub(super) fn found(
        &mut self,
        name: &'static str,
        page: &'static str,
        unknown: Option<String>,
        findings: Vec<ClusterFinding>,
    ) {
        match unknown.filter(|_| findings.is_empty()) {
            Some(why) => self.skip(name, page, &why),
            None => self.add(name, page, findings),
        }
    }

    /// Adds a check that was not made.
    pub(super) fn skip(&mut self, name: &'static str, page: &'static str, why: &str) {
        self.checks.push(Check { name, page, result: CheckResult::Skipped(why.to_owned()) });
    }
}

impl Check {
    /// For programs.
    pub(super) fn program(&self) -> Value {
        let (state, why) = match &self.result {
            CheckResult::Passed => ("passed", None),
            CheckResult::Failed(_) => ("failed", None),
            CheckResult::Skipped(why) => ("skipped", Some(why)),
        };
        json!({ "name": self.name, "state": state, "why": why, "page": self.page })
    }
}

/// One line, as `linkerd check` prints it.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, page, result } = self;
        match result {
            CheckResult::Passed => write!(f, "\u{2713} {name}"),
            CheckResult::Failed(number) => write!(f, "\u{2717} {name}: {number}, see {page}"),
            CheckResult::Skipped(why) => write!(f, "\u{2013} {name}: not checked, {why}"),
        }
    }
}
