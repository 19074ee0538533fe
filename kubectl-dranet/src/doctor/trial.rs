//! `doctor --try`: an aligned pod, first as a dry run and then really. It is examined while it runs,
//! and always deleted.

use super::checks::Outcome;
use crate::answer::Severity;
use crate::args::TrialArgs;
use crate::kinds::PODS;
use crate::live::{Cluster, Signals};
use crate::own_pods::{self, PERIOD, State};
use crate::reply::{Probe, Verb};
use crate::source::{self, Source};
use crate::verify;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use process::exit::one_line;
use serde::Deserialize as _;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The pod while it exists.
struct Trial<'a> {
    cluster: &'a Cluster,
    args: &'a TrialArgs,
    signals: Signals,
    namespace: String,
    name: String,
}

/// Makes both checks, once for each class of GPUs that a pod must choose from.
pub(super) fn run(
    source: &Source,
    args: &TrialArgs,
    namespace: Option<&str>,
    classes: &[&str],
) -> anyhow::Result<[Outcome; 2]> {
    let Source::Live(cluster) = source else {
        anyhow::bail!("--try creates a pod, so it needs a cluster, not a snapshot");
    };
    let namespace = namespace.map_or_else(|| cluster.default_namespace(), str::to_owned);
    let Some((first, others)) = classes.split_first() else {
        return of_class(cluster, source, args, (&namespace, None));
    };
    let mut outcomes = of_class(cluster, source, args, (&namespace, Some(first)))?;
    for class in others {
        let more = of_class(cluster, source, args, (&namespace, Some(class)))?;
        outcomes.iter_mut().zip(more).for_each(|(outcome, more)| outcome.add(more));
    }
    Ok(outcomes)
}

/// Makes both checks with GPUs of a class.
fn of_class(
    cluster: &Cluster,
    source: &Source,
    args: &TrialArgs,
    (namespace, class): (&str, Option<&str>),
) -> anyhow::Result<[Outcome; 2]> {
    let namespace = namespace.to_owned();
    let name = format!("dranet-doctor-{:x}", Timestamp::now().as_microsecond());
    let mut pod = own_pods::pod(&name, &args.image, (1, 1), args.timeout);
    own_pods::choose(&mut pod, class);
    let with = class.map(|class| format!(" with GPUs of class {class}")).unwrap_or_default();
    let place = format!("pod of --try{with} in namespace `{namespace}`");
    let mut outcomes = <[Outcome; 2]>::default();
    let [admitted, runs] = &mut outcomes;
    let why = match cluster.dry_run_pod(&namespace, &pod)? {
        Probe::Created(changed) if has_claim(&changed) => {
            let signals = cluster.catch_signals()?;
            let mut trial = Trial { cluster, args, signals, namespace, name };
            let outcome = trial.outcome(&pod, source);
            let left = trial.delete().err();
            let found = match (outcome, &left) {
                (Err(error), Some(left)) => return Err(error.context(left.to_string())),
                (outcome, _) => outcome?,
            };
            if let Some((severity, what)) = found {
                runs.findings.add(severity, &*place, what);
            }
            if let Some(left) = left {
                runs.findings.warning(place, one_line(&left));
            }
            return Ok(outcomes);
        }
        Probe::Created(_) => {
            "would be created without a claim: the webhook did not change it".to_owned()
        }
        Probe::Refused(why) => format!("is refused: {why}"),
        Probe::NoRight => {
            return Ok(
                [(); 2].map(|()| Outcome::skipped("you may not create pods in this namespace"))
            );
        }
    };
    admitted.findings.error(place, why);
    *runs = Outcome::skipped("it is not admitted");
    Ok(outcomes)
}

fn has_claim(pod: &Value) -> bool {
    pod["spec"]["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty())
}

impl Trial<'_> {
    /// Creates the pod, waits until it runs, and compares what it got with what it was promised.
    fn outcome(
        &mut self,
        pod: &Value,
        source: &Source,
    ) -> anyhow::Result<Option<(Severity, String)>> {
        self.request(Verb::Create(pod))?;
        let until = Instant::now() + Duration::from_secs(self.args.timeout.into());
        loop {
            let pod = self.request(Verb::Get)?;
            let pod =
                pod.with_context(|| format!("pod `{}` is gone; somebody deleted it", self.name))?;
            let waits = match State::new(&pod) {
                State::Running(_) | State::Ended { is_success: true, .. } => {
                    return examined(&pod, source);
                }
                State::Ended { message, .. } => {
                    return Ok(Some((Severity::Error, format!("failed: {message}"))));
                }
                State::Broken(why) => {
                    return Ok(Some((Severity::Error, format!("does not start: {why}"))));
                }
                // Devices that are in use are no fault of the installation.
                State::Unscheduled(why) => (Severity::Warning, format!("got no node: {why}")),
                State::Starting(why) => {
                    (Severity::Error, format!("did not start on its node: {why}"))
                }
            };
            if Instant::now() > until {
                let (severity, why) = waits;
                let seconds = self.args.timeout;
                return Ok(Some((
                    severity,
                    format!("{why} (after {seconds} seconds, --try-timeout)"),
                )));
            }
            self.cluster.pause_or_end(&mut self.signals, PERIOD)?;
        }
    }

    fn request(&mut self, verb: Verb<'_>) -> anyhow::Result<Option<Value>> {
        self.cluster.request_object(&mut self.signals, PODS, (&self.namespace, &self.name), verb)
    }

    /// Deletes the pod and waits until it is gone.
    fn delete(&mut self) -> anyhow::Result<()> {
        let left = format!(
            "may still exist; delete it: `kubectl -n {} delete pod {}`",
            self.namespace, self.name
        );
        let names = std::slice::from_ref(&self.name);
        own_pods::delete(self.cluster, &mut self.signals, &self.namespace, PODS, (names, &left))
    }
}

/// What is wrong with the devices of the running pod.
fn examined(pod: &Value, source: &Source) -> anyhow::Result<Option<(Severity, String)>> {
    let view = source.read(&source::of_view(), &[])?.view;
    Ok(match verify::of_pod_now(&Pod::deserialize(pod)?, &view) {
        Err(why) => Some((Severity::Warning, format!("ran, but its devices are not known: {why}"))),
        Ok(None) => Some((Severity::Error, "ran without a GPU and a NIC".to_owned())),
        Ok(Some((path, true))) => {
            Some((Severity::Error, format!("got a NIC farther from its GPU than promised: {path}")))
        }
        Ok(Some((_, false))) => None,
    })
}
