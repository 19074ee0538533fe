//! Scores of GB300 nodes in different states, for pods as they reach the
//! extender: a node is the example cluster's, under another name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use scheduler_ext::in_flight::ASSUMED_FOR;
use scheduler_ext::prioritize::{Answer, Ranker, Reason};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// GPU and NIC of one index are partners; 0 and 1 are on one NUMA node.
const NICS: [&str; 4] =
    ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];

/// Names of nodes, and what is in use on them.
const NODES: [&str; 7] = [
    "none",
    "gpu0-nic0",
    "gpu0-nic0-nic1",
    "gpu0-nic0-gpu1-nic1",
    "gpu0-nic0-gpu2-nic2",
    "gpu0-nic0-gpu1-nic1-gpu2-nic2",
    // What is free is on two NUMA nodes.
    "gpu1-gpu2-gpu3-nic0-nic1",
];

/// The nodes of these names, and one without any devices.
fn view(nodes: &[&str]) -> ClusterView {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for node in nodes {
        fs::write(folder.path().join(format!("{node}.yaml")), text.replace(NODE, node)).unwrap();
    }
    let plain = "apiVersion: v1\nkind: Node\nmetadata: {name: plain}\n";
    fs::write(folder.path().join("plain.yaml"), plain).unwrap();
    let (mut view, _) = snapshot::load(folder.path()).unwrap();
    for node in nodes.iter().filter(|node| node.contains("gpu") || node.contains("nic")) {
        view.apply(claim("other", node, node, node)).unwrap();
    }
    for (name, requests) in [("one", required()), ("soft", preferred()), ("four", whole())] {
        view.apply(template(name, &requests)).unwrap();
    }
    view
}

/// A claim that holds these devices of a node.
fn claim(namespace: &str, name: &str, node: &str, devices: &str) -> ResourceClaim {
    let results: Vec<_> = devices
        .split('-')
        .map(|device| {
            let index: usize = device[3..].parse().unwrap();
            let (driver, name) = match &device[..3] {
                "gpu" => ("gpu.nvidia.com", format!("gpu-{index}")),
                _ => ("dra.net", NICS[index].to_owned()),
            };
            json!({"request": "r", "driver": driver, "pool": node, "device": name})
        })
        .collect();
    from(&json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": required(),
        "status": {"allocation": {"devices": {"results": results}}},
    }))
}

fn template(name: &str, spec: &Value) -> ResourceClaimTemplate {
    from(&json!({"metadata": {"namespace": "team", "name": name}, "spec": {"spec": spec}}))
}

/// One GPU and its partner NIC, as admission writes it.
fn required() -> Value {
    json!({"devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
        ],
        "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": "gpu.nvidia.com/uuid"}],
    }})
}

/// One GPU and its partner NIC, else any NIC.
fn preferred() -> Value {
    json!({"devices": {
        "requests": [
            {"name": "nic", "firstAvailable": [
                {"name": "near", "deviceClassName": "dranet.net"},
                {"name": "any", "deviceClassName": "dranet.net"},
            ]},
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ],
        "constraints": [
            {"requests": ["gpu", "nic/near"], "matchAttribute": "gpu.nvidia.com/uuid"},
        ],
    }})
}

/// Four GPUs and four NICs.
fn whole() -> Value {
    json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}},
        {"name": "nic", "exactly": {"deviceClassName": "dranet.net", "count": 4}},
    ]}})
}

fn pod(name: &str, claims: &Value) -> Pod {
    from(&json!({
        "metadata": {"namespace": "team", "name": name},
        "spec": {"containers": [], "resourceClaims": claims},
    }))
}

fn pod_of(template: &str) -> Pod {
    pod("p", &json!([{"name": "dranet", "resourceClaimTemplateName": template}]))
}

fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn ask(ranker: &Ranker, pod: &Pod, nodes: &[&str], view: &ClusterView, now: Instant) -> Answer {
    let nodes: Vec<_> = nodes.iter().map(|node| (*node).to_owned()).collect();
    ranker.prioritize(pod, &nodes, view, now, &|| false)
}

fn answer(pod: &Pod, nodes: &[&str], view: &ClusterView) -> Answer {
    ask(&Ranker::default(), pod, nodes, view, Instant::now())
}

/// Points of each node.
fn points(answer: &Answer) -> Vec<(&str, i64)> {
    answer.nodes.iter().map(|scored| (scored.node.as_str(), scored.score)).collect()
}

fn table(pod: &Pod, view: &ClusterView) -> String {
    let nodes: Vec<_> = NODES.into_iter().chain(["plain"]).collect();
    let mut text = String::new();
    for scored in answer(pod, &nodes, view).nodes {
        let reason = match scored.reason {
            Reason::Predicted(outcome, _) => format!("predicted {outcome:?}"),
            Reason::Likely(outcome, _) => format!("likely    {outcome:?}"),
            Reason::Unknown(reason) => format!("unknown   {reason}"),
        };
        writeln!(text, "{:<30}{:>2}  {reason}", scored.node, scored.score).unwrap();
    }
    text
}

#[test]
fn nodes_are_ranked_by_what_the_pod_gets_and_then_by_what_is_left() {
    let view = view(&NODES);
    insta::assert_snapshot!("required", table(&pod_of("one"), &view));
    insta::assert_snapshot!("preferred", table(&pod_of("soft"), &view));
}

/// The first fault of the score that counted cells: it broke nothing to give far devices.
#[test]
fn near_devices_come_before_whole_cells() {
    let nodes = ["none", "gpu1-gpu2-gpu3-nic0-nic1"];
    let answer = answer(&pod_of("soft"), &nodes, &view(&nodes));
    assert_eq!(points(&answer), [(nodes[0], 10), (nodes[1], 0)]);
}

/// The second: an empty node was as good as one with a broken cell.
#[test]
fn whole_nodes_are_kept_for_pods_that_need_them() {
    let nodes = ["none", "gpu0-nic0-gpu1-nic1", "gpu0-nic0", "gpu0-nic0-gpu1-nic1-gpu2-nic2"];
    let answer = answer(&pod_of("one"), &nodes, &view(&nodes));
    let points: Vec<_> = points(&answer).into_iter().map(|(_, points)| points).collect();
    // Last is the node with one pair left, then the broken cell, then the whole cell.
    assert!(points.is_sorted_by(|a, b| a != b), "{points:?}");
    assert_eq!([points[0], points[3]], [0, 10]);
    assert!(points[1] < points[2], "a whole NUMA node is worth more than half of one: {points:?}");
}

/// The third: what the scheduler has given away and not yet written was free.
#[test]
fn a_pod_in_flight_has_its_devices() {
    let nodes = ["gpu0-nic0-gpu1-nic1-gpu2-nic2", "gpu0-nic0", "none"];
    let mut view = view(&nodes);
    let ranker = Ranker::default();
    let start = Instant::now();
    let made = |name: &str| {
        let mut made: ResourceClaim = claim("team", name, nodes[0], "gpu3-nic3");
        made.status = None;
        made
    };
    let pod = |name: &str| pod(name, &json!([{"name": "dranet", "resourceClaimName": name}]));
    for name in ["a", "b"] {
        view.apply(made(name)).unwrap();
    }
    let first = ask(&ranker, &pod("a"), &nodes, &view, start);
    assert_eq!(points(&first), [(nodes[0], 10), (nodes[1], 5), (nodes[2], 0)]);

    // The last pair of the first node is given away, so that nothing is known there.
    let second = ask(&ranker, &pod("b"), &nodes, &view, start);
    assert!(matches!(second.nodes[0].reason, Reason::Unknown(_)), "{second:?}");
    assert_eq!(points(&second)[1], (nodes[1], 10));

    // A pod that asks again has nothing.
    let again = ask(&ranker, &pod("a"), &nodes, &view, start);
    assert_eq!(again.nodes[0].score, 10);

    // What was assumed and did not come is forgotten in time.
    assert!(ranker.settle(&view, start + ASSUMED_FOR).is_empty());
    let later = ask(&ranker, &pod("b"), &nodes, &view, start + ASSUMED_FOR);
    assert_eq!(later.nodes[0].score, 10);

    // The claim says what it got, and this was forecast.
    view.apply(claim("team", "b", nodes[0], "gpu3-nic3")).unwrap();
    let landed = ranker.settle(&view, start + ASSUMED_FOR);
    let [landed] = landed.as_slice() else { panic!("{landed:?}") };
    assert_eq!(landed.assumed, Some((nodes[0].to_owned(), true)));
    let of = landed.forecast.as_ref().unwrap();
    assert!(of.is_right && of.is_certain, "{of:?}");
}

#[test]
fn a_forecast_that_was_wrong_is_told_from_a_node_that_changed() {
    let nodes = ["none", "gpu0-nic0"];
    for (other, certain) in [(None, true), (Some("gpu1-nic1"), false)] {
        let mut view = view(&nodes);
        let ranker = Ranker::default();
        let mut made = claim("team", "a", nodes[1], "gpu2-nic2");
        made.status = None;
        view.apply(made).unwrap();
        let pod = pod("a", &json!([{"name": "dranet", "resourceClaimName": "a"}]));
        ask(&ranker, &pod, &nodes, &view, Instant::now());
        if let Some(devices) = other {
            view.apply(claim("other", "late", nodes[1], devices)).unwrap();
        }
        view.apply(claim("team", "a", nodes[1], "gpu2-nic2")).unwrap();
        let landed = ranker.settle(&view, Instant::now());
        let of = landed[0].forecast.as_ref().unwrap();
        assert_eq!((of.is_right, of.is_certain), (false, certain));
    }
}

#[test]
fn equal_nodes_are_equal_and_order_does_not_matter() {
    let nodes = ["none", "gpu0-nic0", "gpu0-nic0-gpu1-nic1"];
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let mut view = view(&nodes);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twin.yaml");
    fs::write(&file, text.replace(NODE, "twin")).unwrap();
    for object in snapshot::objects(&file).unwrap() {
        match object["kind"].as_str() {
            Some("ResourceSlice") => view.apply(from::<ResourceSlice>(&object)).unwrap(),
            Some("NodeTopology") => {
                view.apply(from::<topology_graph::NodeTopology>(&object)).unwrap();
            }
            _ => {}
        }
    }
    let forward = ["twin", "gpu0-nic0", "none", "gpu0-nic0-gpu1-nic1"];
    let mut backward = forward;
    backward.reverse();
    let there = answer(&pod_of("one"), &forward, &view);
    let back = answer(&pod_of("one"), &backward, &view);
    let mut reversed = points(&back);
    reversed.reverse();
    assert_eq!(points(&there), reversed);
    assert_eq!(there.nodes[0].score, there.nodes[2].score);
}

/// The answer comes from memory until something changes, and then is another.
#[test]
fn what_is_remembered_is_what_a_fresh_look_says() {
    let mut view = view(&NODES);
    let ranker = Ranker::default();
    let (pod, start) = (pod_of("one"), Instant::now());
    let asked = |view: &ClusterView| ask(&ranker, &pod, &NODES, view, start);
    assert_eq!((asked(&view).hits, asked(&view).hits), (0, NODES.len()));
    view.apply(claim("other", "more", "none", "gpu2-nic2")).unwrap();
    let after = asked(&view);
    assert_eq!(after.hits, NODES.len() - 1);
    assert_eq!(points(&after), points(&answer(&pod, &NODES, &view)));
    let key = ObjectKey { namespace: "other".to_owned(), name: "more".to_owned() };
    Index::<ResourceClaim>::delete(&mut view, &key);
    assert_eq!(points(&asked(&view)), points(&answer(&pod, &NODES, &view)));
    // The pods that are expected are others now; so is what is lost.
    ranker.learn(&view);
    assert_eq!(asked(&view).nodes.len(), NODES.len());
}

/// Before 1.36 the scheduler takes pools in random order.
#[test]
fn of_an_older_server_scores_are_likely() {
    let mut view = view(&NODES);
    assert_eq!(table(&pod_of("one"), &view).matches("predicted").count(), 6);
    view.set_settings(Settings::defaults_of(MinorVersion::V1_35));
    assert_eq!(table(&pod_of("one"), &view).matches("likely").count(), 6);
}

#[test]
fn a_pod_that_asks_for_nothing_of_ours_gets_no_opinion() {
    let view = view(&["none", "gpu0"]);
    let held = from(&json!({
        "metadata": {"namespace": "other", "name": "p"},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "mine", "resourceClaimName": "gpu0"},
        ]},
    }));
    for pod in [pod("p", &json!([])), held] {
        assert!(answer(&pod, &["none", "gpu0"], &view).nodes.is_empty());
    }
}

#[test]
fn what_is_not_known_is_neutral() {
    let view = view(&["none", "gpu0"]);
    let lost = answer(&pod_of("lost"), &["none", "gpu0"], &view);
    assert_eq!(points(&lost), [("none", 5), ("gpu0", 5)]);
    let plain = answer(&pod_of("one"), &["none", "plain", "nowhere"], &view);
    assert_eq!(points(&plain), [("none", 10), ("plain", 5), ("nowhere", 5)]);
    // No time is left.
    let nodes = ["none".to_owned(), "gpu0".to_owned()];
    let late =
        Ranker::default().prioritize(&pod_of("one"), &nodes, &view, Instant::now(), &|| true);
    assert_eq!(points(&late), [("none", 5), ("gpu0", 5)]);
}

/// A pod with several claims: one that is there already counts for what the pod gets, one
/// with admin access takes nothing.
#[test]
fn all_claims_of_a_pod_count() {
    let nodes = ["none", "nic3"];
    let mut view = view(&nodes);
    let gpu = json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
    ]}});
    let mut admin = gpu.clone();
    admin["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    view.apply(template("gpu", &gpu)).unwrap();
    view.apply(template("admin", &admin)).unwrap();
    view.apply(claim("team", "nic", "nic3", "nic0")).unwrap();

    let by = |name: &str| json!({"name": name, "resourceClaimTemplateName": name});
    let shared = json!({"name": "nic", "resourceClaimName": "nic"});
    let outcome = |claims: Value, node: usize| {
        let answer = answer(&pod("p", &claims), &nodes, &view);
        match &answer.nodes[node].reason {
            Reason::Predicted(outcome, forecast) => (*outcome, forecast.taken.len()),
            other => panic!("{other:?}"),
        }
    };
    let (alone, taken) = outcome(json!([by("gpu")]), 1);
    assert_eq!((alone.gets.path, taken), (None, 1));
    let (paired, taken) = outcome(json!([by("gpu"), shared]), 1);
    assert!(paired.gets.path.is_some(), "the GPU goes with the NIC that is there: {paired:?}");
    assert_eq!(taken, 1);
    let (two, taken) = outcome(json!([by("gpu"), by("one")]), 0);
    assert!(two.gets.path.is_some());
    assert_eq!(taken, 3);
    let (watcher, taken) = outcome(json!([by("admin")]), 0);
    assert_eq!((watcher.cost.loss, taken), (0, 0));
}

#[test]
fn time_moves_on_without_pods() {
    let ranker = Ranker::default();
    let view = view(&["none"]);
    ranker.learn(&view);
    assert!(ranker.settle(&view, Instant::now() + Duration::from_hours(1)).is_empty());
}
