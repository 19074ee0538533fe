//! Debug pages of a pod and of a node.

use super::cluster::{H100, ask, classes, cluster, from, holding, node_of, pod, unaligned};
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::pages::{NodePage, PodPage};
use scheduler_ext::prioritize::Ranker;
use serde_json::{Value, json};
use std::time::Instant;

const NODES: [&str; 3] = ["a", "b", "c"];

/// Three nodes. On the first, a pair is in use; on the second, a GPU and a NIC on
/// different NUMA nodes.
fn view() -> ClusterView {
    let nodes = NODES.iter().flat_map(|node| node_of(H100, node));
    let objects: Vec<Value> = classes().into_iter().chain(nodes).collect();
    let mut view = cluster(&objects);
    let pair = |gpu: usize, nic: usize| {
        [("gpu.nvidia.com", format!("gpu-{gpu}")), ("dra.net", format!("nic-{nic}"))].into_iter()
    };
    for (name, node, devices) in [("x", "a", pair(0, 0)), ("y", "b", pair(1, 6))] {
        let mut claim = holding("team", name, node, devices);
        claim.spec = from(&unaligned("gpu.nvidia.com", 1, 1));
        view.apply(claim).unwrap();
    }
    view
}

fn names() -> Vec<String> {
    NODES.iter().map(|node| (*node).to_owned()).collect()
}

#[test]
fn node_page_has_devices_holders_and_standard_score() {
    let view = view();
    let ranker = Ranker::default();
    ranker.learn(&view);
    let standard = ranker.standard(&names(), &view);
    let expected = ranker.expected();
    let page = NodePage::new("a", &view, &expected, &standard, &[]).unwrap();
    let json = serde_json::to_value(&page).unwrap();
    insta::assert_json_snapshot!("node", json);
    assert!(NodePage::new("nowhere", &view, &expected, &standard, &[]).is_none());
}

/// A ranking in parts, which unlock the view in between, equals one at once.
#[test]
fn parts_of_an_answer_are_ranked_together() {
    let view = view();
    let ranker = Ranker::default();
    ranker.learn(&view);
    let scores = |answer: &scheduler_ext::answer::Answer| -> Vec<(String, i64)> {
        answer.nodes.iter().map(|scored| (scored.node.clone(), scored.score)).collect()
    };
    let parts = names().chunks(1).map(|part| ranker.standard(part, &view)).collect();
    let joined = scheduler_ext::answer::Answer::join(parts);
    assert_eq!(scores(&joined), scores(&ranker.standard(&names(), &view)));
}

#[test]
fn without_claims_there_is_no_standard_pod() {
    let objects: Vec<Value> = classes().into_iter().chain(node_of(H100, "a")).collect();
    let view = cluster(&objects);
    let ranker = Ranker::default();
    ranker.learn(&view);
    let standard = ranker.standard(&["a".to_owned()], &view);
    let page = NodePage::new("a", &view, &ranker.expected(), &standard, &[]).unwrap();
    let json = serde_json::to_value(&page).unwrap();
    assert_eq!(json["standardPod"]["claim"], Value::Null);
}

#[test]
fn pod_page_has_a_row_per_node_best_first() {
    let mut view = view();
    let mut made: ResourceClaim = holding("team", "p", "a", std::iter::empty());
    made.spec = from(&unaligned("gpu.nvidia.com", 1, 1));
    made.status = None;
    view.apply(made).unwrap();
    let ranker = Ranker::default();
    let pod = pod("p", &json!([{"name": "dranet", "resourceClaimName": "p"}]));
    let answer = ask(&ranker, &pod, &NODES, &view, Instant::now());
    let page = PodPage::new(&answer);
    let rows = serde_json::to_value(&page).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), NODES.len());
    assert!(rows.is_sorted_by_key(|row| -row["score"].as_i64().unwrap()), "{rows:?}");
    for field in ["of", "score", "basis", "alternative", "path", "degraded", "loss", "left"] {
        assert!(!rows[0][field].is_null(), "no {field}: {}", rows[0]);
    }
    assert_eq!(rows[0]["devices"].as_array().unwrap().len(), 2);
}
