//! Scores of nodes in random states of a cluster with machines of several kinds, as they were recorded.
//!
//! Snapshots of `scoring` hold tables of one kind of node; this record holds all scores and their reasons, as
//! the extender gives them while devices come into use.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "scoring/cluster.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;
#[path = "../../tests/src/random.rs"]
#[allow(unreachable_pub, reason = "a library has it too")]
mod random;
#[path = "../../tests/recorded/record.rs"]
mod record;

use cluster::{
    A100, AMD, H100, NICS, apply, ask, classes, gb300, holding, node_of, pod_of, preferred,
    required, template, unaligned,
};
use cluster_model::view::{ClusterView, Index as _};
use random::Random;
use scheduler_ext::answer::Reason;
use scheduler_ext::expected::Expected;
use scheduler_ext::prioritize::Ranker;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Instant;

/// Clusters that are compared in every run, and those that are recorded.
const FEW: usize = 60;
const MOST: usize = 1_000;

const ROUNDS: usize = 3;

static TEMPLATES: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let mut shared = unaligned("gpu", 1, 1);
    shared["devices"]["requests"][1]["exactly"]["capacity"] =
        json!({ "requests": { "dranet.io/bandwidth": "200G" } });
    vec![
        ("partner", preferred("gpu", "gpu.nvidia.com/uuid", 1, 1)),
        ("required", required()),
        ("numa", preferred("gpu", H100.numa, 1, 1)),
        ("two-gpus", preferred("gpu", H100.numa, 2, 1)),
        ("two-pairs", preferred("gpu", H100.numa, 2, 2)),
        ("far-pairs", unaligned("gpu", 2, 2)),
        ("four", unaligned("gpu.nvidia.com", 4, 4)),
        ("shared", shared),
    ]
});

/// The kinds of nodes, each read once.
static KINDS: LazyLock<[Vec<Value>; 4]> = LazyLock::new(|| {
    [gb300("NODE"), node_of(H100, "NODE"), node_of(A100, "NODE"), node_of(AMD, "NODE")]
});

/// A node of a kind, on a fabric, in a domain, or whose NICs claims can share.
fn node(view: &mut ClusterView, random: &mut Random, kind: usize, name: &str) {
    let (fabric, domain) = (random.below(4), random.below(4));
    let is_shared = random.below(4) == 0;
    for object in &KINDS[kind] {
        let text = object.to_string().replace("NODE", name);
        let mut object: Value = serde_json::from_str(&text).unwrap();
        match object["kind"].as_str().unwrap() {
            "NodeTopology" if fabric < 2 => object["spec"]["fabric"] = format!("f{fabric}").into(),
            "Node" if domain < 2 => {
                let key = "topology.dranet.io/nvlink-domain";
                object["metadata"]["labels"][key] = format!("d{domain}").into();
            }
            "ResourceSlice" if is_shared && object["spec"]["driver"] == "dra.net" => {
                for device in object["spec"]["devices"].as_array_mut().unwrap() {
                    device["allowMultipleAllocations"] = true.into();
                    device["capacity"] = json!({ "dranet.io/bandwidth": { "value": "800G" } });
                }
            }
            _ => {}
        }
        apply(view, &object);
    }
}

/// Claims hold some devices of a node.
fn hold(view: &mut ClusterView, random: &mut Random, kind: usize, name: &str, round: usize) {
    let number = if kind == 0 { 4 } else { 8 };
    let driver = if kind == 3 { AMD.gpus } else { "gpu.nvidia.com" };
    let nic = |index: usize| {
        if kind == 0 { NICS[index].to_owned() } else { format!("nic-{index}") }
    };
    let mut devices = Vec::new();
    for index in 0..number {
        if random.below(5) == 0 {
            devices.push((driver, format!("gpu-{index}")));
        }
        if random.below(5) == 0 {
            devices.push(("dra.net", nic(index)));
        }
    }
    let claim = holding("other", &format!("{name}-{round}"), name, devices.into_iter());
    view.apply(claim).unwrap();
}

/// The devices of a forecast, or why there is none.
fn told(reason: &Reason) -> String {
    let (word, forecast) = match reason {
        Reason::Predicted(_, forecast) => ("predicted", forecast),
        Reason::Likely(_, forecast) => ("likely", forecast),
        Reason::Unknown(why) => return why.to_string(),
    };
    let devices = forecast.taken.iter().map(|id| format!(" {}/{}", id.driver, id.device));
    format!("{word}{}", devices.collect::<String>())
}

fn case(seed: usize) -> String {
    let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut view = ClusterView::default();
    classes().iter().for_each(|class| apply(&mut view, class));
    for (name, spec) in &*TEMPLATES {
        apply(&mut view, &template(name, spec));
    }
    let kinds: Vec<usize> = (0..2 + random.below(5)).map(|_| random.below(KINDS.len())).collect();
    let names: Vec<String> = (0..kinds.len()).map(|index| format!("n{index}")).collect();
    for (kind, name) in kinds.iter().zip(&names) {
        node(&mut view, &mut random, *kind, name);
    }
    apply(&mut view, &json!({ "kind": "Node", "metadata": { "name": "plain" } }));
    let expected = ["", "1x1=1,2*4x4=1", "2x2=3,8x8=1"];
    let ranker = match *random.pick(&expected) {
        "" => Ranker::default(),
        shapes => Ranker::new(Expected::new(shapes.parse().unwrap())),
    };
    let all: Vec<&str> = names.iter().map(String::as_str).chain(["plain"]).collect();
    let mut text = format!("{kinds:?}\n");
    for round in 0..ROUNDS {
        ranker.learn(&view);
        for (name, _) in &*TEMPLATES {
            let answer = ask(&ranker, &pod_of(name), &all, &view, Instant::now());
            for scored in &answer.nodes {
                let (node, score) = (&scored.node, scored.score);
                writeln!(text, "{round} {name} {node} {score} {}", told(&scored.reason)).unwrap();
            }
        }
        for (kind, name) in kinds.iter().zip(&names) {
            hold(&mut view, &mut random, *kind, name, round);
        }
    }
    text
}

#[test]
fn scores_in_random_states() {
    record::compare("scores", &record::numbers(FEW, MOST), |seed| case(*seed));
}
