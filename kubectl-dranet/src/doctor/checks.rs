//! A check, and the list of what was looked at, with which result.

use super::finding::Findings;
use super::scene::Scene;
use super::{CONTROL_PLANE, installation};
use crate::answer::{CheckState, DoctorCheck, DoctorFinding, Severity};
use crate::kinds::{DEVICES, Kind};
use crate::live::Cluster;
use std::fmt;

/// A row of the table of checks.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// The page about what it finds.
    pub(super) page: &'static str,
    /// Kinds without which it proves nothing.
    kinds: &'static [Kind],
    /// Whether its findings would be wrong without them.
    is_wrong_without: bool,
    /// What must be there, so that nothing found means that all is well.
    basis: Basis,
    /// Whether it can be made before the project is installed.
    pub(super) is_early: bool,
    examine: Examine,
}

/// What a check is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis {
    /// Something that every cluster has.
    Cluster,
    /// GPUs of a DRA driver, or of a device plugin.
    Gpus,
    /// NICs of a known driver.
    Nics,
    /// Graphs of nodes.
    Graphs,
    /// Machine types with GPUs and NICs.
    Machines,
    /// The version of the API server, or pods of the control plane.
    ControlPlane,
    /// Any part of the project.
    Project,
    /// The extender.
    Extender,
}

/// Finds one kind of problem in what was read. Its findings say what to do.
pub(super) type Rule = fn(&Scene<'_>, &mut Findings);

/// The same, by requests to the cluster.
type Ask = fn(&Scene<'_>, &Cluster) -> anyhow::Result<Outcome>;

enum Examine {
    Objects(&'static [Rule]),
    Live(Ask),
}

/// What a check says.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) findings: Findings,
    /// What could not be read.
    pub(super) notes: Vec<String>,
    /// Why the check was not made.
    pub(super) skipped: Option<String>,
}

impl Outcome {
    /// Adds what the same check says of something else.
    pub(super) fn add(&mut self, other: Self) {
        self.findings.0.extend(other.findings.0);
        self.notes.extend(other.notes);
        self.skipped = self.skipped.take().or(other.skipped);
    }
}

/// The checks so far, and what they said.
#[derive(Debug, Default)]
pub(super) struct Checklist {
    pub(super) checks: Vec<DoctorCheck>,
    pub(super) findings: Vec<DoctorFinding>,
    pub(super) notes: Vec<String>,
}

/// A check of objects.
pub(super) const fn found(
    name: &'static str,
    page: &'static str,
    kinds: &'static [Kind],
    rules: &'static [Rule],
) -> Check {
    let (is_wrong_without, basis, is_early) = (false, Basis::Cluster, false);
    let examine = Examine::Objects(rules);
    Check { name, page, kinds, is_wrong_without, basis, is_early, examine }
}

/// A check of devices, which is not made if the user may not read all about them.
pub(super) const fn known(name: &'static str, page: &'static str, rules: &'static [Rule]) -> Check {
    Check { is_wrong_without: true, ..found(name, page, &DEVICES, rules) }
}

/// A check that a snapshot cannot answer.
pub(super) const fn live(
    name: &'static str,
    page: &'static str,
    kinds: &'static [Kind],
    ask: Ask,
) -> Check {
    Check { examine: Examine::Live(ask), ..found(name, page, kinds, &[]) }
}

impl Check {
    /// The same about something that need not be there.
    pub(super) const fn on(self, basis: Basis) -> Self {
        Self { basis, ..self }
    }

    /// The same, also before the project is installed.
    pub(super) const fn early(self) -> Self {
        Self { is_early: true, ..self }
    }

    /// The same, not made at all if the user may not read these kinds.
    pub(super) const fn only_with(self, kinds: &'static [Kind]) -> Self {
        Self { kinds, is_wrong_without: true, ..self }
    }

    pub(super) fn outcome(&self, scene: &Scene<'_>) -> anyhow::Result<Outcome> {
        let unread = scene.unread(self.kinds);
        let absent = self.basis.absent(scene);
        let mut outcome = Outcome::default();
        match (&self.examine, scene.cluster) {
            (Examine::Live(_), Some(_)) if absent.is_some() => {}
            _ if self.is_wrong_without && unread.is_some() => {}
            (Examine::Objects(rules), _) => {
                rules.iter().for_each(|rule| rule(scene, &mut outcome.findings));
            }
            (Examine::Live(ask), Some(cluster)) => outcome = ask(scene, cluster)?,
            (Examine::Live(_), None) => outcome = Outcome::skipped("only on a live cluster"),
        }
        if outcome.findings.0.is_empty() {
            outcome.skipped = outcome.skipped.or(unread).or_else(|| absent.map(str::to_owned));
        }
        Ok(outcome)
    }
}

impl Basis {
    /// Why nothing found would mean nothing.
    fn absent(self, scene: &Scene<'_>) -> Option<&'static str> {
        let Scene { census, states, machines, seen, .. } = scene;
        let (is_there, without) = match self {
            Self::Cluster => return None,
            Self::Gpus => {
                let plugin = scene.view.present_nodes().any(|node| scene.has_plugin_gpus(node));
                (plugin || !census.with_gpus().is_empty(), "no node has GPUs")
            }
            Self::Nics => {
                let has_nics = states.values().any(|state| state.nics.all > 0);
                (has_nics || !census.with_nics().is_empty(), "no node has NICs of a known driver")
            }
            Self::Graphs => (!census.graphs.is_empty(), "no node has published a graph"),
            Self::Machines => (!machines.is_empty(), "no node has both GPUs and NICs"),
            Self::ControlPlane => {
                let has_pods =
                    seen.of_kind("Pod").any(|pod| pod["metadata"]["namespace"] == CONTROL_PLANE);
                (
                    seen.server.is_some() || has_pods,
                    "neither the version of the API server nor a pod of it is known",
                )
            }
            Self::Project => (installation::is_there(seen), "no part of the project is there"),
            Self::Extender => (
                !installation::is_readable(seen) || installation::has_extender(seen),
                "scheduler-ext is not installed",
            ),
        };
        (!is_there).then_some(without)
    }
}

impl Outcome {
    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }
}

impl Checklist {
    pub(super) fn add(&mut self, (name, page): (&str, &str), outcome: Outcome) {
        let Outcome { findings: Findings(findings), notes, skipped: why } = outcome;
        let failures = findings.iter().filter(|it| it.severity > Severity::Note).count();
        let state = match (&why, failures) {
            (Some(_), _) => CheckState::Skipped,
            (None, 0) => CheckState::Passed,
            (None, _) => CheckState::Failed,
        };
        let (name, page) = (name.to_owned(), page.to_owned());
        self.checks.push(DoctorCheck { name, state, why, page, failures });
        self.findings.extend(findings);
        self.notes.extend(notes);
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
