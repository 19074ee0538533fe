//! Scores of GB300 nodes in different states, for pods as they reach the extender. Each
//! node is that of the example cluster under another name.

use super::cluster::{
    NICS, answer, apply, ask, claim, cluster, from, gb300, pod, pod_of, points, preferred,
    required, template, unaligned,
};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::answer::{Answer, Reason};
use scheduler_ext::expected::Expected;
use scheduler_ext::in_flight::{ASSUMED_FOR, Assumptions};
use scheduler_ext::prioritize::Ranker;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Names of nodes, and what is in use on them.
const NODES: [&str; 7] = [
    "none",
    "gpu0-nic0",
    "gpu0-nic0-nic1",
    "gpu0-nic0-gpu1-nic1",
    "gpu0-nic0-gpu2-nic2",
    "gpu0-nic0-gpu1-nic1-gpu2-nic2",
    // The free devices are on two NUMA nodes.
    "gpu1-gpu2-gpu3-nic0-nic1",
];

/// The nodes of these names, and one without any devices.
fn view(nodes: &[&str]) -> ClusterView {
    let mut objects: Vec<Value> = nodes.iter().flat_map(|node| gb300(node)).collect();
    objects.push(json!({"kind": "Node", "metadata": {"name": "plain"}}));
    let soft = preferred("gpu.nvidia.com", "gpu.nvidia.com/uuid", 1, 1);
    for (name, spec) in
        [("one", required()), ("soft", soft), ("four", unaligned("gpu.nvidia.com", 4, 4))]
    {
        objects.push(template(name, &spec));
    }
    let mut view = cluster(&objects);
    for node in nodes.iter().filter(|node| node.contains("gpu") || node.contains("nic")) {
        view.apply(claim("other", node, node, node)).unwrap();
    }
    view
}

fn table(pod: &Pod, view: &ClusterView) -> String {
    let nodes: Vec<_> = NODES.into_iter().chain(["plain"]).collect();
    let mut text = String::new();
    for scored in &answer(pod, &nodes, view).nodes {
        let reason = match &scored.reason {
            Reason::Predicted(outcome, _) => format!("predicted {outcome:?}"),
            Reason::Likely(outcome, _) => format!("likely    {outcome:?}"),
            Reason::Unknown(reason) => format!("unknown   {reason}"),
        };
        writeln!(text, "{:<30}{:>2}  {reason}", scored.node, scored.score).unwrap();
    }
    text
}

#[test]
fn nodes_are_ranked_by_devices_then_by_what_is_left() {
    let view = view(&NODES);
    insta::assert_snapshot!("required", table(&pod_of("one"), &view));
    insta::assert_snapshot!("preferred", table(&pod_of("soft"), &view));
}

/// Regression: a score that counted only cells preferred far devices, because they broke
/// no cell.
#[test]
fn near_devices_come_before_whole_cells() {
    let nodes = ["none", "gpu1-gpu2-gpu3-nic0-nic1"];
    let answer = answer(&pod_of("soft"), &nodes, &view(&nodes));
    assert_eq!(points(&answer), [(nodes[0], 10), (nodes[1], 0)]);
}

/// Regression: an empty node was as good as one with a broken cell.
#[test]
fn whole_nodes_are_kept_for_pods_that_need_them() {
    // From the emptiest to the fullest. Of the two equally full nodes, the first would
    // lose a whole NUMA node; the second has none.
    let nodes = [
        "none",
        "gpu0-nic0",
        "gpu0-nic0-gpu1-nic1",
        "gpu0-nic0-gpu2-nic2",
        "gpu0-nic0-gpu1-nic1-gpu2-nic2",
    ];
    let answer = answer(&pod_of("one"), &nodes, &view(&nodes));
    let points: Vec<_> = points(&answer).into_iter().map(|(_, points)| points).collect();
    assert!(points.is_sorted_by(|a, b| a < b), "{points:?}");
    assert_eq!([points[0], points[4]], [0, 10]);
}

/// With three whole nodes there is still room for a gang of two after one of them is used; with two
/// there is not. On a node that is in use already, no gang loses anything.
#[test]
fn a_fabric_that_keeps_its_gangs_is_used_first() {
    let fabrics = [("two", ["a", "b"].as_slice()), ("three", &["c", "d", "e"])];
    let mut objects = vec![template("one", &required())];
    for (fabric, nodes) in fabrics {
        for mut object in nodes.iter().flat_map(|node| gb300(node)) {
            if object["kind"] == "NodeTopology" {
                object["spec"]["fabric"] = fabric.into();
            }
            objects.push(object);
        }
    }
    let mut view = cluster(&objects);
    let ranker = Ranker::new(Expected::new("1x1=1,2*4x4=1".parse().unwrap()));
    let asked = |view: &ClusterView| {
        ranker.learn(view);
        points(&ask(&ranker, &pod_of("one"), &["a", "c"], view, Instant::now()))
            .iter()
            .map(|(_, points)| *points)
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(&view), [0, 10]);
    // Now each fabric has two whole nodes.
    view.apply(claim("other", "held", "e", "gpu0-nic0")).unwrap();
    assert_eq!(asked(&view), [10, 10]);
}

/// One fabric has two NVLink domains. The one with three whole nodes keeps its gang of two.
#[test]
fn a_domain_that_keeps_its_gangs_is_used_first() {
    let domains = [("two", ["a", "b"].as_slice()), ("three", &["c", "d", "e"])];
    let mut objects = vec![template("one", &required())];
    for (domain, nodes) in domains {
        for mut object in nodes.iter().flat_map(|node| gb300(node)) {
            if object["kind"] == "NodeTopology" {
                object["spec"]["fabric"] = "one".into();
            }
            if object["kind"] == "Node" {
                object["metadata"]["labels"]["topology.dranet.io/nvlink-domain"] = domain.into();
            }
            objects.push(object);
        }
    }
    let ranker = Ranker::new(Expected::new("1x1=1,2*4x4=1".parse().unwrap()));
    let view = cluster(&objects);
    ranker.learn(&view);
    let answer = ask(&ranker, &pod_of("one"), &["a", "c"], &view, Instant::now());
    let points: Vec<_> = points(&answer).iter().map(|(_, points)| *points).collect();
    assert_eq!(points, [0, 10]);
}

/// A pod with a share goes to a node with a shared NIC that has room, so that whole NICs stay free;
/// not to one whose NIC is exclusive or full.
#[test]
fn pods_that_share_nics_are_packed() {
    let nodes = ["alone", "full", "shared"];
    let mut objects: Vec<Value> = nodes.iter().flat_map(|node| gb300(node)).collect();
    for slice in objects.iter_mut().filter(|it| it["spec"]["driver"] == "dra.net") {
        for device in slice["spec"]["devices"].as_array_mut().unwrap() {
            device["allowMultipleAllocations"] = true.into();
            device["capacity"] = json!({"dranet.io/bandwidth": {"value": "800G"}});
        }
    }
    let takes = |bandwidth: &str| json!({"requests": {"dranet.io/bandwidth": bandwidth}});
    let mut spec = unaligned("gpu.nvidia.com", 1, 1);
    spec["devices"]["requests"][1]["exactly"]["capacity"] = takes("200G");
    objects.push(template("share", &spec));
    let mut view = cluster(&objects);
    // A GPU and a NIC are in use on each node; of the NIC this much.
    for (node, bandwidth) in nodes.into_iter().zip(["800G", "700G", "600G"]) {
        let gpu =
            json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"});
        let nic = json!({
            "request": "nic", "driver": "dra.net", "pool": node, "device": NICS[0],
            "shareID": "a2b3c4d5-0000-0000-0000-000000000000",
            "consumedCapacity": {"dranet.io/bandwidth": bandwidth},
        });
        let held: ResourceClaim = from(&json!({
            "metadata": {"namespace": "other", "name": node},
            "spec": unaligned("gpu.nvidia.com", 1, 1),
            "status": {"allocation": {"devices": {"results": [gpu, nic]}}},
        }));
        view.apply(held).unwrap();
    }
    let answer = answer(&pod_of("share"), &nodes, &view);
    assert_eq!(points(&answer), [("alone", 0), ("full", 0), ("shared", 10)], "{answer:?}");
}

/// Regression: devices that the scheduler had allocated but not written yet counted as
/// free.
#[test]
fn devices_of_a_pod_in_flight_are_not_free() {
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

    // The first node's last pair is assumed taken, so the outcome there is unknown.
    let second = ask(&ranker, &pod("b"), &nodes, &view, start);
    assert!(matches!(second.nodes[0].reason, Reason::Unknown(_)), "{second:?}");
    assert_eq!(points(&second)[1], (nodes[1], 10));

    // A pod that the scheduler asks about again has no devices.
    let again = ask(&ranker, &pod("a"), &nodes, &view, start);
    assert_eq!(again.nodes[0].score, 10);

    // An assumption that does not come true expires.
    assert!(ranker.settle(&view, start + ASSUMED_FOR).landed.is_empty());
    let later = ask(&ranker, &pod("b"), &nodes, &view, start + ASSUMED_FOR);
    assert_eq!(later.nodes[0].score, 10);

    // The claim shows what the pod got, which equals the forecast.
    view.apply(claim("team", "b", nodes[0], "gpu3-nic3")).unwrap();
    let settled = ranker.settle(&view, start + ASSUMED_FOR);
    let [landed] = settled.landed.as_slice() else { panic!("{settled:?}") };
    assert_eq!(landed.assumed, Some((nodes[0].to_owned(), true)));
    let of = landed.forecast.as_ref().unwrap();
    assert!(of.is_right && of.is_certain, "{of:?}");
}

/// Regression: a pod was not followed if the scheduler knew its claim before our watch did.
#[test]
fn a_claim_that_the_watch_has_not_seen_yet_is_followed() {
    let nodes = ["gpu0-nic0-gpu1-nic1-gpu2-nic2", "gpu0-nic0"];
    let mut view = view(&nodes);
    apply(&mut view, &template("pair", &required()));
    let ranker = Ranker::default();
    let start = Instant::now();
    let mut pod = pod_of("pair");
    pod.status = Some(from(&json!({
        "resourceClaimStatuses": [{"name": "dranet", "resourceClaimName": "p-dranet"}],
    })));
    let answer = ask(&ranker, &pod, &nodes, &view, start);
    assert_eq!(points(&answer), [(nodes[0], 10), (nodes[1], 0)]);

    let settled = ranker.settle(&view, start);
    assert!(settled.landed.is_empty(), "{settled:?}");
    assert_eq!(settled.assumptions, Assumptions::default(), "it is not gone, but not seen yet");

    view.apply(claim("team", "p-dranet", nodes[0], "gpu3-nic3")).unwrap();
    let settled = ranker.settle(&view, start);
    assert_eq!(settled.assumptions, Assumptions { right: 1, ..Assumptions::default() });
    let [landed] = settled.landed.as_slice() else { panic!("{settled:?}") };
    assert!(landed.forecast.as_ref().is_some_and(|of| of.is_right), "{landed:?}");
}

/// Every assumption ends as right, wrong or expired, and is counted once.
#[test]
fn every_assumption_that_ends_is_counted() {
    let nodes = ["gpu0-nic0-gpu1-nic1-gpu2-nic2", "gpu0-nic0"];
    let mut view = view(&nodes);
    let ranker = Ranker::default();
    let start = Instant::now();
    let ask_about = |view: &mut ClusterView, name: &str| {
        let mut made = claim("team", name, nodes[0], "gpu3-nic3");
        made.status = None;
        view.apply(made).unwrap();
        let pod = pod(name, &json!([{"name": "dranet", "resourceClaimName": name}]));
        let answer = ask(&ranker, &pod, &nodes, view, start);
        assert!(answer.first().is_some(), "{answer:?}");
    };
    ask_about(&mut view, "right");
    view.apply(claim("team", "right", nodes[0], "gpu3-nic3")).unwrap();
    let right = ranker.settle(&view, start).assumptions;
    assert_eq!(right, Assumptions { right: 1, ..Assumptions::default() });

    Index::<ResourceClaim>::delete(
        &mut view,
        &ObjectKey { namespace: "team".to_owned(), name: "right".to_owned() },
    );
    ask_about(&mut view, "wrong");
    view.apply(claim("team", "wrong", nodes[1], "gpu2-nic2")).unwrap();
    let wrong = ranker.settle(&view, start).assumptions;
    assert_eq!(wrong, Assumptions { wrong: 1, ..Assumptions::default() });

    ask_about(&mut view, "gone");
    Index::<ResourceClaim>::delete(
        &mut view,
        &ObjectKey { namespace: "team".to_owned(), name: "gone".to_owned() },
    );
    let gone = ranker.settle(&view, start).assumptions;
    assert_eq!(gone, Assumptions { wrong: 1, ..Assumptions::default() }, "its claim is gone");

    ask_about(&mut view, "late");
    ask_about(&mut view, "late");
    let again = ranker.settle(&view, start).assumptions;
    assert_eq!(again, Assumptions { wrong: 1, ..Assumptions::default() }, "it asked again");
    let late = ranker.settle(&view, start + ASSUMED_FOR).assumptions;
    assert_eq!(late, Assumptions { expired: 1, ..Assumptions::default() });
    let later = ranker.settle(&view, start + 2 * ASSUMED_FOR).assumptions;
    assert_eq!(later, Assumptions::default(), "an assumption ends once");
}

#[test]
fn a_wrong_forecast_differs_from_a_changed_node() {
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
        let landed = ranker.settle(&view, Instant::now()).landed;
        let of = landed[0].forecast.as_ref().unwrap();
        assert_eq!((of.is_right, of.is_certain), (false, certain));
    }
}

#[test]
fn equal_nodes_are_equal_and_order_does_not_matter() {
    let nodes = ["none", "gpu0-nic0", "gpu0-nic0-gpu1-nic1"];
    let mut view = view(&nodes);
    for object in gb300("twin") {
        apply(&mut view, &object);
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

/// The answer comes from memory until something changes; then it differs.
#[test]
fn cached_answers_equal_fresh_answers() {
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
    // The expected pods have changed, so the loss has too.
    ranker.learn(&view);
    assert_eq!(asked(&view).nodes.len(), NODES.len());
}

/// Before Kubernetes 1.36 the scheduler takes pools in random order.
#[test]
fn scores_are_likely_before_1_36() {
    let mut view = view(&NODES);
    assert_eq!(table(&pod_of("one"), &view).matches("predicted").count(), 6);
    view.set_settings(Settings::defaults_of(MinorVersion::V1_35));
    assert_eq!(table(&pod_of("one"), &view).matches("likely").count(), 6);
}

#[test]
fn a_pod_without_open_claims_gets_no_scores() {
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
fn unknown_outcomes_are_neutral() {
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

/// A pod with several claims: an allocated one counts for what the pod gets; one with
/// admin access takes nothing.
#[test]
fn all_claims_of_a_pod_count() {
    let nodes = ["none", "nic3"];
    let mut view = view(&nodes);
    let gpu = json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
    ]}});
    let mut admin = gpu.clone();
    admin["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    apply(&mut view, &template("gpu", &gpu));
    apply(&mut view, &template("admin", &admin));
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
    assert_eq!((alone.gets.farthest, taken), (None, 1));
    let (paired, taken) = outcome(json!([by("gpu"), shared]), 1);
    assert!(paired.gets.farthest.is_some(), "the GPU goes with the NIC that is there: {paired:?}");
    assert_eq!(taken, 1);
    let (two, taken) = outcome(json!([by("gpu"), by("one")]), 0);
    assert!(two.gets.farthest.is_some());
    assert_eq!(taken, 3);
    let (watcher, taken) = outcome(json!([by("admin")]), 0);
    assert_eq!((watcher.cost.loss, taken), (0, 0));
}

/// Without a limit on shares, the scheduler gives the first GPU of a node again and again. A node where
/// no other pod uses it comes first.
#[test]
fn pods_that_share_gpus_are_spread_over_nodes() {
    let mut objects: Vec<Value> = ["a", "b"].iter().flat_map(|node| gb300(node)).collect();
    for slice in objects.iter_mut().filter(|it| it["spec"]["driver"] == "gpu.nvidia.com") {
        for gpu in slice["spec"]["devices"].as_array_mut().unwrap() {
            gpu["allowMultipleAllocations"] = true.into();
            gpu["capacity"] = json!({});
        }
    }
    objects.push(template("one", &unaligned("gpu.nvidia.com", 1, 1)));
    let mut view = cluster(&objects);
    let mut share = claim("other", "share", "a", "gpu0");
    let allocation = share.status.as_mut().unwrap().allocation.as_mut().unwrap();
    for result in allocation.devices.as_mut().unwrap().results.iter_mut().flatten() {
        result.share_id = Some("00000000-0000-4000-8000-000000000000".to_owned());
    }
    view.apply(share).unwrap();
    let answer = answer(&pod_of("one"), &["a", "b"], &view);
    assert_eq!(points(&answer), [("a", 0), ("b", 10)], "{answer:?}");
}

#[test]
fn time_moves_on_without_pods() {
    let ranker = Ranker::default();
    let view = view(&["none"]);
    ranker.learn(&view);
    assert!(ranker.settle(&view, Instant::now() + Duration::from_hours(1)).landed.is_empty());
}

/// Two tenths of a second of expressions on each device: the answer is in time, and not remembered.
#[test]
fn expressions_end_when_there_is_no_time_left() {
    let heavy = "!lists.range(400).all(a, lists.range(400).all(b, a + b >= 0))";
    let mut spec = unaligned("gpu.nvidia.com", 1, 1);
    let request = &mut spec["devices"]["requests"][0]["exactly"];
    request["selectors"] = json!([{"cel": {"expression": heavy}}]);
    let mut view = view(&["none"]);
    apply(&mut view, &template("heavy", &spec));
    let (ranker, nodes) = (Ranker::default(), ["none".to_owned()]);
    let asked = AtomicUsize::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) >= 3;
    let late = ranker.prioritize(&pod_of("heavy"), &nodes, &view, Instant::now(), &stop);
    let reason = |answer: &Answer| format!("{:?}", answer.nodes[0].reason);
    assert!(reason(&late).contains("no time was left"), "{late:?}");
    let unhurried = ranker.prioritize(&pod_of("heavy"), &nodes, &view, Instant::now(), &|| false);
    assert!(reason(&unhurried).contains("take too long to evaluate"), "{unhurried:?}");
}
