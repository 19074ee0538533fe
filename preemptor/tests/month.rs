//! A month of pods, nodes and budgets, each with a name that was never there before: what the controller
//! keeps of them equals what a list gives, and nothing is left when they are gone.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use cluster_model::names::label;
use cluster_model::room::Nodes;
use cluster_model::view::ObjectKey;
use fabric_controller::group_pods::GroupPods;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use preemptor::{Budgets, Pods};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::VecDeque;

const HOURS: usize = 30 * 24;
/// Pods that come in an hour, and for how many hours they stay.
const PODS: usize = 8;
const STAY: usize = 5;
/// Nodes, of which one is replaced in an hour.
const NODES: usize = 10;

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// What the controller keeps.
#[derive(Default)]
struct Kept {
    pods: Pods,
    nodes: Nodes,
    groups: GroupPods,
    budgets: Budgets,
}

impl Kept {
    fn apply(&mut self, pod: &Pod) {
        self.pods.apply(pod);
        self.nodes.apply_pod(pod);
        self.groups.apply(pod);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.pods.delete(key);
        self.nodes.delete_pod(key);
        self.groups.delete(key);
    }

    fn apply_node(&mut self, name: &str) {
        self.nodes.apply(&object::<Node>(json!({"metadata": {"name": name},
            "status": {"allocatable": {"cpu": "64", "pods": "110"}}})));
    }

    /// All that decisions read, in an order that does not depend on the order of changes.
    fn text(&self) -> String {
        let pods = self.pods.to_read();
        let mut bound: Vec<String> = pods.bound().map(|it| format!("{it:?}")).collect();
        bound.sort_unstable();
        let waiting: Vec<_> = pods.waiting().collect();
        format!("{bound:?}{waiting:?}{:?}{:?}", self.groups.to_read(), self.budgets)
    }

    fn size(&self) -> usize {
        self.text().len() + format!("{:?}", self.nodes.to_read()).len()
    }
}

/// A pod of a job in a namespace of its own; every other one has a node already.
fn pod(number: usize, node: &str, stage: usize) -> Pod {
    let (name, gate) = (format!("train-{number}"), [json!({"name": "topology.dranet.io/fabric"})]);
    let is_bound = stage > 0 || number.is_multiple_of(2);
    object(json!({
        "metadata": {"name": name, "namespace": namespace(number), "uid": format!("{number:032}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"job": name, label::FABRIC_GROUP: name},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name,
                "controller": true}]},
        "spec": {"nodeName": is_bound.then_some(node), "priority": number % 5,
            "schedulingGates": if is_bound { &[][..] } else { &gate[..] },
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "resourceClaims": [{"name": "d", "resourceClaimTemplateName": name}]},
        "status": {"phase": "Running"},
    }))
}

fn namespace(number: usize) -> String {
    format!("ci-{number}")
}

fn budget(number: usize) -> PodDisruptionBudget {
    object(json!({"metadata": {"name": "all", "namespace": namespace(number)},
        "spec": {"selector": {"matchLabels": {"job": format!("train-{number}")}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}}))
}

#[test]
fn in_a_month_nothing_of_pods_nodes_and_budgets_grows() {
    let mut kept = Kept::default();
    let empty = kept.size();
    let mut nodes: VecDeque<String> = VecDeque::new();
    let mut there: VecDeque<(usize, String)> = VecDeque::new();
    let (mut first, mut last) = (0, 0);
    for hour in 0..HOURS {
        let name = format!("node-{hour}");
        kept.apply_node(&name);
        nodes.push_back(name);
        if nodes.len() > NODES {
            kept.nodes.delete(&nodes.pop_front().unwrap());
        }
        for index in 0..PODS {
            let (number, node) = (hour * PODS + index, nodes[index % nodes.len()].clone());
            kept.apply(&pod(number, &node, 0));
            kept.budgets.apply(budget(number));
            there.push_back((number, node));
        }
        // Those of the hour before are bound by now.
        for (number, node) in there.iter().rev().skip(PODS).take(PODS) {
            kept.apply(&pod(*number, node, 1));
        }
        while there.len() > PODS * STAY {
            let (gone, _) = there.pop_front().unwrap();
            let own = |name: String| ObjectKey { namespace: namespace(gone), name };
            kept.delete(&own(format!("train-{gone}")));
            kept.budgets.delete(&own("all".to_owned()));
        }
        let most = if hour < 4 * 24 { &mut first } else { &mut last };
        *most = kept.size().max(*most);
        if hour % 24 == 23 {
            let mut listed = Kept::default();
            for node in &nodes {
                listed.apply_node(node);
            }
            for (index, (number, node)) in there.iter().enumerate() {
                let stage = usize::from(index + PODS < there.len());
                listed.apply(&pod(*number, node, stage));
                listed.budgets.apply(budget(*number));
            }
            assert_eq!(kept.text(), listed.text(), "hour {hour}");
        }
    }
    println!("{} pods; {first} characters at first, {last} later", HOURS * PODS);
    assert!(last <= first + first / 20, "{first} characters in the first days, later {last}");
    for (gone, _) in there {
        let own = |name: String| ObjectKey { namespace: namespace(gone), name };
        kept.delete(&own(format!("train-{gone}")));
        kept.budgets.delete(&own("all".to_owned()));
    }
    for node in &nodes {
        kept.nodes.delete(node);
    }
    assert_eq!(kept.size(), empty, "{}", kept.text());
}
