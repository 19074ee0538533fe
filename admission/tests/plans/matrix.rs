//! Every machine with every intent: the decision, one line each.

use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::view::ClusterView;
use std::fmt::Write as _;

const INTENTS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    (1, &[("aligned-nics", "1"), ("alignment", "root")]),
    (1, &[("aligned-nics", "1"), ("alignment", "root-port")]),
    (1, &[("aligned-nics", "1"), ("alignment", "switch")]),
    (1, &[("aligned-nics", "1"), ("alignment-policy", "preferred")]),
    (1, &[("aligned-nics", "2")]),
    (1, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    (1, &[("aligned-nics", "3")]),
    (2, &[("aligned-nics", "per-gpu")]),
    (2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (2, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    (2, &[("aligned-nics", "1")]),
    (4, &[("aligned-nics", "per-gpu")]),
    (4, &[("aligned-nics", "4"), ("pairing", "group")]),
    (4, &[("aligned-nics", "4"), ("pairing", "group"), ("alignment-policy", "preferred")]),
    (4, &[("aligned-nics", "per-gpu"), ("alignment-policy", "preferred")]),
    (6, &[("aligned-nics", "per-gpu")]),
    (8, &[("aligned-nics", "per-gpu")]),
    (8, &[("aligned-nics", "per-gpu"), ("alignment-policy", "preferred")]),
    (8, &[("aligned-nics", "8"), ("pairing", "group")]),
];

/// The decision on one pod, and for plans the whole claim.
fn decision(view: &ClusterView, gpus: u32, annotations: &[(&str, &str)], resource: &str) -> String {
    match admit(&pod(resource, gpus, annotations), view, &Policy::default()) {
        Ok(verdict) => {
            let plan = verdict.planned.expect("the pod has the trigger").plan;
            let note = plan.note("…");
            note.split("; template").next().unwrap_or_default().to_owned()
        }
        Err(AdmitError::Denied(denial)) => format!("denied: {denial}"),
        Err(error) => format!("error: {error}"),
    }
}

fn report(view: &ClusterView, resource: &str) -> String {
    let mut text = String::new();
    for (gpus, annotations) in INTENTS {
        let words: Vec<_> =
            annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let decision = decision(view, *gpus, annotations, resource);
        writeln!(text, "{gpus} GPU {}\n    {decision}", words.join(" ")).unwrap();
    }
    text
}

#[test]
fn machines_and_intents() {
    let h100_and_a100 = [H100, A100];
    let cases: &[(&str, &str, &[Machine])] = &[
        ("gb300", "nvidia.com/gpu", &[GB300]),
        ("gb300_with_numa", "nvidia.com/gpu", &[GB300.with(Gpus::NvidiaWithNuma)]),
        ("gb200", "nvidia.com/gpu", &[GB200]),
        ("h100", "nvidia.com/gpu", &[H100]),
        ("h100_with_an_old_driver", "nvidia.com/gpu", &[H100.with(Gpus::Nvidia)]),
        ("a100", "nvidia.com/gpu", &[A100]),
        ("mi300x", "amd.com/gpu", &[MI300X]),
        ("p4d", "nvidia.com/gpu", &[P4D]),
        ("hgx", "nvidia.com/gpu", &[HGX]),
        ("dgx_h100", "nvidia.com/gpu", &[DGX_H100]),
        ("a3", "nvidia.com/gpu", &[A3]),
        ("gb300_and_h100", "nvidia.com/gpu", &[GB300, GB300, H100]),
        ("h100_and_a100", "nvidia.com/gpu", &h100_and_a100),
        ("nvidia_and_amd", "amd.com/gpu", &[H100, MI300X]),
        ("h100_as_intel", "gpu.intel.com/xe", &[H100.with(Gpus::Intel)]),
        ("wrong_numa_beside_right", "nvidia.com/gpu", &[A3, GB200]),
    ];
    for (name, resource, machines) in cases {
        insta::assert_snapshot!((*name).to_owned(), report(&cluster(machines), resource));
    }
}
