//! The list of checks: what was looked at, and with which result.

use crate::answer::{CheckState, DoctorCheck, DoctorFinding, Severity};
use std::fmt;

/// The checks so far, and what they found.
#[derive(Debug, Default)]
pub(super) struct Checklist {
    pub(super) checks: Vec<DoctorCheck>,
    pub(super) findings: Vec<DoctorFinding>,
}

impl Checklist {
    /// Adds a check with its findings.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        page: &'static str,
        findings: impl IntoIterator<Item = DoctorFinding>,
    ) {
        let before = self.findings.len();
        self.findings.extend(findings);
        let new = self.findings[before..].iter();
        let failures = new.filter(|finding| finding.severity > Severity::Note).count();
        let state = if failures == 0 { CheckState::Passed } else { CheckState::Failed };
        let (name, page) = (name.to_owned(), page.to_owned());
        self.checks.push(DoctorCheck { name, state, why: None, page, failures });
    }

    /// The same, unless it is unknown for a reason.
    pub(super) fn known(
        &mut self,
        name: &'static str,
        page: &'static str,
        unknown: Option<&String>,
        findings: impl IntoIterator<Item = DoctorFinding>,
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
        findings: Vec<DoctorFinding>,
    ) {
        match unknown.filter(|_| findings.is_empty()) {
            Some(why) => self.skip(name, page, &why),
            None => self.add(name, page, findings),
        }
    }

    /// Adds a check that was not made.
    pub(super) fn skip(&mut self, name: &'static str, page: &'static str, why: &str) {
        self.checks.push(DoctorCheck {
            name: name.to_owned(),
            state: CheckState::Skipped,
            why: Some(why.to_owned()),
            page: page.to_owned(),
            failures: 0,
        });
    }
}

/// One line, as `linkerd check` prints it.
impl fmt::Display for DoctorCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, why, page, failures } = self;
        match state {
            CheckState::Passed => write!(f, "\u{2713} {name}"),
            CheckState::Failed => write!(f, "\u{2717} {name}: {failures}, see {page}"),
            CheckState::Skipped => {
                write!(f, "\u{2013} {name}: not checked, {}", why.as_deref().unwrap_or_default())
            }
        }
    }
}
