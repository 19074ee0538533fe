//! Decisions on random pods in random fleets, as they were recorded: template, note, rewritten pod and
//! warnings, or the denial.
//!
//! Snapshots of `plans`, `pods`, `nics_only`, `parts`, `other_drivers` and `nic_drivers` hold the notes of
//! fixed pods on each machine; this record holds every byte of many others.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;
#[path = "recorded/fleet.rs"]
mod fleet;
#[path = "recorded/pod.rs"]
mod pod;
#[path = "../../tests/src/random.rs"]
#[allow(unreachable_pub, reason = "a library has it too")]
mod random;
#[path = "../../tests/recorded/record.rs"]
mod record;

use admission::admit::{admit, free_elsewhere};
use admission::fabric::FabricPlacement;
use admission::plan::{Policy, QuotaEscape};
use cluster_model::view::{ClusterView, Index as _};
use fleet::Fleet;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use random::Random;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Fleets that are compared in every run, and those that are recorded.
const FEW: usize = 200;
const MOST: usize = 10_000;

fn policy(random: &mut Random) -> Policy {
    let some = random.below(12);
    Policy {
        max_steps: if some == 0 { 400 } else { Policy::default().max_steps },
        admit_unknown: some == 1,
        scheduler_name: (some == 2).then(|| "aligned".to_owned()),
        network_namespaces: if some < 6 { vec!["*".to_owned()] } else { Vec::new() },
        quota_escape: if some == 3 { QuotaEscape::Warn } else { QuotaEscape::Deny },
        fabric: match some {
            4 => FabricPlacement::Off,
            5 => FabricPlacement::PodGroups,
            _ => FabricPlacement::Gates,
        },
        ..Policy::default()
    }
}

/// What is decided on a pod, and on the pod that it becomes.
fn decision(pod: &Value, view: &mut ClusterView, policy: &Policy) -> String {
    let mut text = format!("asked: {pod}\n");
    let verdict = match admit(pod, view, policy) {
        Ok(verdict) => verdict,
        Err(error) => return text + &format!("denied: {error}\n"),
    };
    let Some(planned) = verdict.planned else { return text + "nothing is planned\n" };
    let template = json!(planned.template);
    writeln!(text, "pod: {}\ntemplate: {template}", verdict.pod).unwrap();
    writeln!(text, "channel: {}", json!(planned.channel)).unwrap();
    for warning in verdict.warnings {
        writeln!(text, "warning: {warning}").unwrap();
    }
    // Where the template is, the pod stays as it is; and a pinned one may have room elsewhere.
    let mut template: ResourceClaimTemplate = planned.template;
    template.metadata.namespace = verdict.pod["metadata"]["namespace"].as_str().map(str::to_owned);
    view.apply(template).unwrap();
    let again = admit(&verdict.pod, view, policy).map(|again| again.pod == verdict.pod);
    writeln!(text, "again the same: {:?}", again.map_err(|error| error.to_string())).unwrap();
    if planned.plan.place.is_some() {
        let pod = serde_json::from_value(verdict.pod).unwrap();
        writeln!(text, "elsewhere: {:?}", free_elsewhere(&pod, view, policy)).unwrap();
    }
    text
}

fn case(seed: usize) -> String {
    // Small seeds differ in few bits, and 0 is none.
    let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let fleet = Fleet::new(&mut random);
    let mut view = fleet.view(&mut random);
    let (pod, policy) = (pod::new(&mut random, &fleet), policy(&mut random));
    format!("{fleet}\n{}", decision(&pod, &mut view, &policy))
}

#[test]
fn decisions_on_pods_of_random_fleets() {
    record::compare("plans", &record::numbers(FEW, MOST), |seed| case(*seed));
}
