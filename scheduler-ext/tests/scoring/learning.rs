//! The results and steps of a cluster scan.

use super::cluster::{A100, H100, classes, cluster, from, gb300, holding, node_of};
use cluster_model::remembered::Remembered;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::answers::Answers;
use scheduler_ext::expected::Expected;
use scheduler_ext::learn::{CLAIMS_PER_STEP, Learning, NODES_PER_STEP};
use scheduler_ext::prioritize::Ranker;
use scheduler_ext::score::{Demand, Mix};
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::Arc;
use topology_graph::PathKind;

const NODES: usize = 120;

/// Nodes of two kinds, each with one claim.
fn view() -> ClusterView {
    let mut objects: Vec<Value> = classes();
    for number in 0..NODES {
        let size = if number % 2 == 0 { H100 } else { A100 };
        objects.extend(node_of(size, &format!("node-{number}")));
    }
    let mut view = cluster(&objects);
    for number in 0..NODES {
        let devices = [("gpu.nvidia.com", "gpu-0".to_owned()), ("dra.net", "nic-0".to_owned())];
        let node = format!("node-{number}");
        view.apply(holding("n", &node, &node, devices.into_iter())).unwrap();
    }
    view
}

/// Requests wait for a watch, and the watch waits for readers of the view, so every step must be
/// short.
#[test]
fn a_scan_step_reads_few_nodes() {
    let view = view();
    let answers = Answers::default();
    let in_step = Cell::new(0);
    let machine = |node: &str| {
        in_step.set(in_step.get() + 1);
        answers.machine(&view, node)
    };
    let mut learning = Learning::new(Arc::default());
    let mut steps = 0;
    while learning.step(&view, &machine) {
        assert!(in_step.replace(0) <= NODES_PER_STEP);
        steps += 1;
    }
    let claims = NODES / CLAIMS_PER_STEP + 1;
    assert_eq!(steps + 1, claims + NODES.div_ceil(NODES_PER_STEP));
}

/// A claim that is deleted during the scan leaves nothing wrong behind.
#[test]
fn a_scan_in_steps_equals_a_scan_at_once() {
    let mut view = view();
    let ranker = Ranker::new(Expected::new(Mix::default()));
    let mut learning = ranker.learning();
    ranker.look(&mut learning, &view);
    let gone = ObjectKey { namespace: "n".to_owned(), name: "node-0".to_owned() };
    Index::<ResourceClaim>::delete(&mut view, &gone);
    while ranker.look(&mut learning, &view) {}
    ranker.expect(learning);
    let at_once = Ranker::new(Expected::new(Mix::default()));
    at_once.learn(&view);
    assert_eq!(ranker.expected().fabrics(), at_once.expected().fabrics());
}

/// For each shape: how many more pods could have each GPU and its NIC in one cell of each
/// level.
#[test]
fn the_room_of_a_fabric_is_counted_at_every_level() {
    let objects: Vec<Value> =
        classes().into_iter().chain(node_of(H100, "a")).chain(node_of(A100, "b")).collect();
    let mut view = cluster(&objects);
    let room = |view: &ClusterView, demand: Demand| {
        let ranker = Ranker::new(Expected::new(Mix::new([(demand, 1)])));
        ranker.learn(view);
        let expected = ranker.expected();
        expected.fabrics()[""].pods[&demand].clone()
    };
    // Levels are switch, root port, root, NUMA node and node. H100 has pairs below one
    // switch and four of each on a NUMA node, A100 two of each.
    assert_eq!(room(&view, Demand::gpus(8)), [2, 2, 2, 2, 2]);
    let pairs = room(&view, Demand::gpus(1));
    assert_eq!((pairs[3], pairs[4]), (16, 16));
    let fours = room(&view, Demand::gpus(4));
    assert_eq!((fours[3], fours[4]), (4, 4));
    // The NICs do not divide evenly here, so all devices must be together.
    let odd = room(&view, Demand { gpus: 2, nics: 3, nodes: 1 });
    assert_eq!((odd[3], odd[4]), (2, 4), "A100 has no NUMA node with three NICs");
    // With a GPU of one NUMA node and a NIC of the other taken on H100, seven pods fit,
    // six of them near.
    let taken = [("gpu.nvidia.com", "gpu-0".to_owned()), ("dra.net", "nic-7".to_owned())];
    view.apply(holding("n", "c", "a", taken.into_iter())).unwrap();
    let sevens = room(&view, Demand::gpus(7));
    assert_eq!((sevens[3], sevens[4]), (1, 2));
    assert!(!room(&view, Demand::gpus(1)).is_empty());
}

/// Pods count from the first scan on, also after their end.
#[test]
fn the_mix_has_the_pods_that_came() {
    let objects: Vec<Value> = classes().into_iter().chain(node_of(H100, "a")).collect();
    let mut view = cluster(&objects);
    let ranker = Ranker::new(Expected::new("8x8=1".parse().unwrap()));
    for number in 0..10 {
        let name = format!("p{number}");
        let device = ("gpu.nvidia.com", "gpu-0".to_owned());
        let mut claim = holding("n", &name, "a", [device].into_iter());
        let consumer = json!([{"resource": "pods", "name": name, "uid": name}]);
        claim.status.as_mut().unwrap().reserved_for = from(&consumer);
        view.apply(claim).unwrap();
        ranker.learn(&view);
        let key = ObjectKey { namespace: "n".to_owned(), name };
        Index::<ResourceClaim>::delete(&mut view, &key);
        ranker.learn(&view);
    }
    let expected = ranker.expected();
    let one = Demand { gpus: 1, nics: 0, nodes: 1 };
    let share = expected.mix().shares().iter().find(|(demand, _)| *demand == one).unwrap().1;
    // 10 of 110, less what does not matter: a difference of two percent.
    assert!((70_000..=91_000).contains(&share), "{share}");
}

/// Every pod that gets devices is reported once, whether the scheduler asked about it or
/// not.
#[test]
fn bound_pods_are_reported_once_with_their_farthest_path() {
    let objects: Vec<Value> = classes().into_iter().chain(node_of(H100, "a")).collect();
    let mut view = cluster(&objects);
    let ranker = Ranker::default();
    let look = |view: &ClusterView| -> Vec<(String, Option<PathKind>)> {
        let mut learning = ranker.learning();
        while ranker.look(&mut learning, view) {}
        let bound = ranker.expect(learning).into_iter();
        bound.map(|bound| (bound.pod.key.to_string(), bound.path)).collect()
    };
    let bind = |view: &mut ClusterView, pod: &str, claim: &str, device: (&'static str, &str)| {
        let device = (device.0, device.1.to_owned());
        let mut claim = holding("n", claim, "a", [device].into_iter());
        let consumer = json!([{"resource": "pods", "name": pod, "uid": pod}]);
        claim.status.as_mut().unwrap().reserved_for = from(&consumer);
        view.apply(claim).unwrap();
    };
    bind(&mut view, "early", "e", ("gpu.nvidia.com", "gpu-5"));
    assert_eq!(look(&view), [], "what was there before is nothing new");
    // One pod with two claims, whose devices are on two NUMA nodes.
    bind(&mut view, "far", "gpu", ("gpu.nvidia.com", "gpu-0"));
    bind(&mut view, "far", "nic", ("dra.net", "nic-7"));
    bind(&mut view, "single", "one", ("gpu.nvidia.com", "gpu-1"));
    let far = ("n/far".to_owned(), Some(PathKind::Sys));
    assert_eq!(look(&view), [far, ("n/single".to_owned(), None)]);
    bind(&mut view, "late", "l", ("gpu.nvidia.com", "gpu-6"));
    assert_eq!(look(&view), [("n/late".to_owned(), None)]);
    assert_eq!(look(&view), []);
}

/// A machine that admission remembers of a pool without nodes is not a node.
#[test]
fn a_remembered_machine_has_no_room() {
    let objects = gb300("a");
    let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
    let machine = Remembered::new(
        from(of_kind("Node").next().unwrap()),
        of_kind("ResourceSlice").map(from).collect(),
        from(of_kind("NodeTopology").next().unwrap()),
    );
    let entries = [("pool".to_owned(), ByteString(machine.encode().unwrap()))];
    let known = ConfigMap { binary_data: Some(entries.into()), ..ConfigMap::default() };

    let rooms = |view: &ClusterView| {
        let ranker = Ranker::new(Expected::new(Mix::default()));
        ranker.learn(view);
        ranker.expected().fabrics().clone()
    };
    let mut view = cluster(&[classes(), objects.clone()].concat());
    let without = rooms(&view);
    view.apply(known).unwrap();
    assert_eq!(view.inventory().node_names().count(), 2);
    assert_eq!(rooms(&view), without);
}
