//! Whether scheduler-ext gets and answers requests, according to its metrics.

use super::checks::Outcome;
use super::finding::Findings;
use super::scene::Scene;
use crate::extenders::{self, ExtenderPod};
use crate::live::Cluster;
use crate::reply::Proxied;

/// Report if at least one in this many requests ran out of time.
const LATE: u64 = 20;

/// What an extender has answered since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    answered: u64,
    /// Those that ran out of time.
    late: u64,
}

/// Asks each extender about its requests, and judges the answers.
#[expect(clippy::unnecessary_wraps, reason = "same signature as the others")]
pub(super) fn ask(scene: &Scene<'_>, cluster: &Cluster) -> anyhow::Result<Outcome> {
    let extenders = extenders::pods(scene.seen);
    let mut outcome = Outcome::default();
    unreachable(&extenders, &mut outcome.findings);
    let mut answers = Vec::new();
    for pod in extenders {
        let Some(path) = pod.metrics_path() else { continue };
        match cluster.proxied(&path) {
            Proxied::Text(text) => answers.push((pod.name, Ok(Requests::new(&text)))),
            Proxied::Failed(why) => answers.push((pod.name, Err(why))),
            Proxied::NoRight => {
                let namespace = pod.namespace;
                return Ok(Outcome::skipped(format!(
                    "you may not get pods/proxy in namespace `{namespace}`"
                )));
            }
        }
    }
    judge(&answers, &mut outcome.findings);
    Ok(outcome)
}

/// A note about extenders that can be reached only from their own node.
fn unreachable(extenders: &[ExtenderPod], found: &mut Findings) {
    let mut hidden = extenders.iter().filter(|it| it.metrics_path().is_none());
    let Some(first) = hidden.next() else { return };
    let message = format!(
        "listens on loopback, next to its scheduler, so only its readiness is checked here. To see \
         whether it gets requests, run on its node: `curl -s http://{}/metrics | grep \
         request_seconds_count`",
        first.operations
    );
    found.note("scheduler-ext", message);
}

impl Requests {
    /// Reads the metrics (`scheduler-ext/src/metrics.rs`).
    fn new(metrics: &str) -> Self {
        Self {
            answered: count(metrics, "dranet_scheduler_ext_request_seconds_count "),
            late: count(metrics, "dranet_scheduler_ext_late_total "),
        }
    }
}

/// The number behind a name; 0 if there is none.
fn count(metrics: &str, name: &str) -> u64 {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    lines.find_map(|rest| rest.trim().parse().ok()).unwrap_or_default()
}

/// Judges what the extenders answered, or why they did not. Of several replicas, only the one
/// next to the leading scheduler gets requests.
fn judge(answers: &[(String, Result<Requests, String>)], found: &mut Findings) {
    let mut all = Requests::default();
    for (name, answer) in answers {
        match answer {
            Ok(Requests { answered, late }) => {
                all.answered += answered;
                all.late += late;
            }
            Err(why) => {
                let message = format!(
                    "does not answer through the API server's proxy: {why}; check its log, and \
                     whether a NetworkPolicy blocks its metrics port"
                );
                found.warning(format!("scheduler-ext pod {name}"), message);
            }
        }
    }
    if all.late > 0 && all.late * LATE >= all.answered {
        let message = format!(
            "ran out of time for {} of {} requests and ranked no nodes for them; give it more CPU, or \
             raise its --timeout and the scheduler's httpTimeout",
            all.late, all.answered
        );
        found.warning("scheduler-ext", message);
    }
    if all.answered == 0 && answers.iter().any(|(_, answer)| answer.is_ok()) {
        let message = "answers, but has had no request since it started; if pods have been scheduled \
                       since, check the extender's entry in the scheduler's configuration, and \
                       the pods' schedulerName";
        found.note("scheduler-ext", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_metrics() {
        let text = "# HELP dranet_scheduler_ext_late Requests.\n\
                    dranet_scheduler_ext_request_seconds_sum 1.5\n\
                    dranet_scheduler_ext_request_seconds_count 40\n\
                    dranet_scheduler_ext_late_total 3\n# EOF\n";
        assert_eq!(Requests::new(text), Requests { answered: 40, late: 3 });
        assert_eq!(Requests::new("<html>"), Requests::default());
    }

    #[test]
    fn answers_of_extenders_are_judged() {
        let answer = |answered, late| ("a".to_owned(), Ok(Requests { answered, late }));
        let words = |answers: &[(String, Result<Requests, String>)]| -> Vec<String> {
            let mut found = Findings::default();
            judge(answers, &mut found);
            found.0.iter().map(|it| format!("{}: {}", it.severity, it.message)).collect()
        };
        assert_eq!(words(&[]), [""; 0], "none is installed");
        assert_eq!(words(&[answer(100, 4)]), [""; 0]);
        assert_eq!(words(&[answer(0, 0), answer(1, 0)]), [""; 0], "one is beside the leader");
        let late = words(&[answer(80, 4), answer(0, 0)]);
        assert!(late.len() == 1 && late[0].starts_with("warning: ran out of time for 4 of 80"));
        let idle = words(&[answer(0, 0)]);
        assert!(idle.len() == 1 && idle[0].starts_with("note: answers, but has had no request"));
        let dead = words(&[("a".to_owned(), Err("connection refused".to_owned()))]);
        let expected =
            "warning: does not answer through the API server's proxy: connection refused";
        assert!(dead.len() == 1 && dead[0].starts_with(expected), "{dead:?}");
    }
}
