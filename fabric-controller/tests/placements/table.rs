//! The choice of fabrics, case by case.

use super::world::{DEVICES, World, from};
use cluster_model::fabric_level::FabricLevel::Nvlink;
use cluster_model::names::{GATE_FABRIC, annotation};
use cluster_model::view::{Index, ObjectKey};
use fabric_controller::FullFabricPolicy;
use fabric_controller::size::Size;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn told(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(gang, text)| ((*gang).to_owned(), (*text).to_owned())).collect()
}

/// Asserts that the decision on each gang starts with this text.
fn assert_told(world: &World, expected: &[(&str, &str)]) {
    let found = world.told();
    let same = found.len() == expected.len()
        && expected
            .iter()
            .all(|(gang, text)| found.get(*gang).is_some_and(|it| it.starts_with(text)));
    assert!(same, "found {found:#?}, expected {expected:#?}");
}

#[test]
fn two_gangs_of_two_on_two_fabrics_of_two_take_one_each() {
    let mut world = World::new(2, 2);
    world.gang("a", 2, "d4");
    world.gang("b", 2, "d4");
    assert_eq!(world.told(), told(&[("a", "2 to f0"), ("b", "2 to f1")]));
    world.release();
    assert_eq!(world.told(), told(&[]), "nothing is left to decide");
    assert_eq!(world.bind(0), Vec::<String>::new());
}

#[test]
fn a_gang_of_three_never_goes_to_a_fabric_of_two() {
    let mut world = World::new(2, 2);
    world.gang("a", 3, "d4");
    assert_told(&world, &[("a", "TooLarge: no fabric is large enough: the group needs 3 places")]);
}

#[test]
fn a_gang_is_placed_when_complete_or_after_a_long_wait() {
    let mut world = World::new(1, 4);
    world.sizes.insert("a".to_owned(), Size { pods: 3, at_once: true });
    world.pod("a-0", "a", "d4", &json!({}));
    world.pod("a-1", "a", "d4", &json!({}));
    assert_told(&world, &[("a", "GroupNotWhole: 2 of the 3 pods of the group exist")]);
    world.now = 300;
    assert_eq!(world.told(), told(&[("a", "2 to f0 (Late)")]));
    // Late pods have places that no other gang takes.
    world.release();
    world.bind(0);
    world.gang("b", 2, "d4");
    assert_told(&world, &[("b", "NoRoom: no fabric has room: 1 of 2 pods fit on f0")]);
    world.pod("a-2", "a", "d4", &json!({}));
    assert_eq!(world.told()["a"], "1 to f0");
}

#[test]
fn the_fabric_with_the_least_room_left_is_chosen() {
    let mut world = World::new(1, 8);
    (0..3).for_each(|node| world.add_node(&format!("small-{node}"), "small", &json!({})));
    world.gang("a", 2, "d4");
    assert_eq!(world.told(), told(&[("a", "2 to small")]));
    // Devices count, not only nodes: eight pods with one device each on two nodes.
    let mut world = World::new(1, 2);
    world.gang("a", 8, "d1");
    world.gang("b", 1, "d1");
    assert_told(&world, &[("a", "8 to f0"), ("b", "NoRoom")]);
}

#[test]
fn gangs_are_ordered_by_priority_and_age() {
    let mut world = World::new(1, 2);
    world.gang("b", 2, "d4");
    world.now = 1;
    world.gang("a", 2, "d4");
    assert_told(&world, &[("b", "2 to f0"), ("a", "NoRoom")]);
    for pod in world.of("a") {
        world.pods.get_mut(&pod).unwrap().spec.as_mut().unwrap().priority = Some(10);
    }
    assert_told(&world, &[("a", "2 to f0"), ("b", "NoRoom")]);
}

#[test]
fn nodes_that_pods_cannot_use_do_not_count() {
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let tolerates = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
    let apart = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [
                {"key": "dranet.io/fabric-group", "operator": "In", "values": ["a"]},
            ]},
        }],
    }}});
    let one_node = json!({"nodeSelector": {"kubernetes.io/hostname": "f0-n0"}});
    let much = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "10"}}}]});
    for (spec, expected) in [
        (json!({}), "2 to f0"),
        (tolerates, "2 to f0"),
        (apart, "TooLarge"),
        (one_node, "2 to f0"),
        (much, "TooLarge"),
    ] {
        let mut world = World::new(1, 1);
        world.add_node("tainted", "f0", &taint);
        world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
        world.pod("a-0", "a", "d1", &spec);
        world.pod("a-1", "a", "d1", &spec);
        let found = world.told();
        assert!(found["a"].starts_with(expected), "{spec}: {found:?}");
    }
}

#[test]
fn gangs_wait_for_other_gates() {
    let mut world = World::new(1, 2);
    world.gang("a", 2, "d4");
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": GATE_FABRIC}]);
    let spec = world.pods.get_mut("a-1").unwrap().spec.as_mut().unwrap();
    spec.scheduling_gates = from(gates);
    assert_told(
        &world,
        &[("a", "OtherGates: pods of the group have other scheduling gates: kueue")],
    );
}

#[test]
fn earlier_choices_are_kept() {
    let mut world = World::new(2, 2);
    world.gang("a", 2, "d4");
    world.now = 1;
    world.gang("b", 2, "d4");
    let annotations = world.pods.get_mut("b-0").unwrap().metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::FABRIC_CHOSEN.to_owned(), "f0".to_owned());
    assert_eq!(world.told(), told(&[("a", "2 to f1"), ("b", "2 to f0")]));
    // Half released, by a leader that has died.
    world.release_one("a-0", "f1");
    assert_eq!(world.told(), told(&[("a", "1 to f1"), ("b", "2 to f0")]));
}

#[test]
fn a_recreated_pod_joins_its_gang_or_waits() {
    let mut world = World::new(2, 2);
    world.gang("a", 2, "d4");
    world.release();
    world.bind(0);
    world.delete("a-1");
    // Its place stays reserved meanwhile.
    world.gang("b", 1, "d4");
    assert_eq!(world.told(), told(&[("b", "1 to f1")]));
    world.pod("a-1", "a", "d4", &json!({}));
    assert_eq!(world.told()["a"], "1 to f0");
    // The other node of the fabric is gone.
    let node = world.nodes_of("a").pop().unwrap();
    let gone = if node == "f0-n0" { "f0-n1" } else { "f0-n0" };
    let gone: Node = from(json!({"metadata": {"name": gone}}));
    world.nodes.delete(gone.metadata.name.as_deref().unwrap());
    Index::<Node>::delete(&mut world.view, &ObjectKey::new(&gone.metadata));
    world.delete("b-0");
    let found = world.told();
    assert!(found["a"].contains("another fabric, f1, has room for the whole group"), "{found:?}");
    world.rules.full_fabric = FullFabricPolicy::Evict;
    assert_eq!(world.told(), told(&[("a", "moves 1")]));
    // Once begun, the move continues even if the policy changes.
    let moving = world.pods.get_mut("a-0").unwrap().metadata.annotations.as_mut().unwrap();
    moving.insert(annotation::FABRIC_MOVES.to_owned(), "true".to_owned());
    world.rules.full_fabric = FullFabricPolicy::Wait;
    assert_eq!(world.told(), told(&[("a", "moves 1")]));
    world.delete("a-0");
    world.pod("a-0", "a", "d4", &json!({}));
    assert_eq!(world.told(), told(&[("a", "2 to f1")]));
}

#[test]
fn a_gang_of_unknown_size_takes_the_fabric_with_most_room() {
    let mut world = World::new(1, 8);
    (0..3).for_each(|node| world.add_node(&format!("small-{node}"), "small", &json!({})));
    world.pod("a-0", "a", "d4", &json!({}));
    assert_eq!(world.told(), told(&[("a", "1 to f0 (OneByOne)")]));
    world.release();
    world.pod("a-1", "a", "d4", &json!({}));
    assert_eq!(world.told(), told(&[("a", "1 to f0")]));
}

#[test]
fn gangs_of_different_pods_settle_one_after_another() {
    let mut world = World::new(1, 3);
    world.gang("a", 2, "d1");
    world.gang("b", 1, "d4");
    assert_told(&world, &[("a", "2 to f0"), ("b", "Settling")]);
    world.release();
    assert_told(&world, &[("b", "Settling")]);
    assert!(world.bind(0).is_empty());
    assert_eq!(world.told(), told(&[("b", "1 to f0")]));
}

#[test]
fn a_large_gang_is_not_starved_by_small_ones() {
    let mut world = World::new(2, 4);
    world.gang("x", 3, "d4");
    world.gang("y", 3, "d4");
    world.release();
    world.bind(0);
    world.gang("large", 4, "d4");
    assert_told(&world, &[("large", "NoRoom")]);
    world.gang("small", 1, "d4");
    assert_told(&world, &[("large", "NoRoom"), ("small", "1 to f0")]);
    // After a while one fabric accepts no other group; the other fabric still does.
    world.rules.starves_after = SignedDuration::from_mins(1);
    world.now = 60;
    world.gang("later", 1, "d4");
    let found = world.told();
    assert_eq!(
        (&*found["small"], &*found["later"]),
        (
            "1 to f1",
            "KeptFree: there is room on f0, and it is reserved for a group that has waited longer"
        )
    );
    for gang in ["x", "small", "later"] {
        world.of(gang).iter().for_each(|pod| world.delete(pod));
    }
    assert_eq!(world.told(), told(&[("large", "4 to f0")]));
}

/// A tenant's expressions, which kube-apiserver accepts, stopped all gangs of the cluster.
#[test]
fn gangs_whose_expressions_take_too_long_wait_alone() {
    let mut world = World::new(2, 2);
    let heavy = "!lists.range(400).all(a, lists.range(400).all(b, a + b >= 0))";
    let template = json!({
        "metadata": {"name": "heavy", "namespace": "n"},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "nics", "exactly": {"deviceClassName": "nic", "selectors": [
                {"cel": {"expression": heavy}},
            ]}},
        ]}}},
    });
    world.view.apply(from::<ResourceClaimTemplate>(template)).unwrap();
    world.gang("a", 2, "heavy");
    world.gang("b", 2, "d4");
    assert_told(&world, &[("a", "Expensive: the CEL expressions"), ("b", "2 to f0")]);
    // Next time it comes last.
    world.expensive.insert("a".to_owned());
    let order: Vec<_> = world.decide().into_iter().map(|it| it.group.label).collect();
    assert_eq!(order, ["b", "a"]);
}

/// A node dies after the gates were removed and before the scheduler has placed every pod.
#[test]
fn a_gang_whose_room_is_gone_is_told_where_there_is_room() {
    let mut world = World::new(2, 2);
    world.gang("a", 2, "d4");
    world.release();
    world.bind_one("a-0", 0);
    let node = world.nodes_of("a").pop().unwrap();
    world.remove_node(if node == "f0-n0" { "f0-n1" } else { "f0-n0" });
    // The scheduler has not tried yet.
    assert_eq!(world.told(), told(&[]));
    world.set_unschedulable("a-1");
    assert_eq!(
        world.told(),
        told(&[(
            "a",
            "FabricFull: the group is on f0, where 0 of 1 waiting pods fit now; another fabric, \
             f1, has room for the whole group: delete all its pods to move it there"
        )])
    );
    world.rules.full_fabric = FullFabricPolicy::Evict;
    assert_eq!(world.told(), told(&[("a", "moves 2")]));
    // Pods that no controller creates again are not evicted.
    for pod in world.of("a") {
        world.pods.get_mut(&pod).unwrap().metadata.owner_references = None;
    }
    assert_told(&world, &[("a", "FabricFull")]);
    // Another node of the fabric: the scheduler places the pod soon.
    world.add_node("f0-n2", "f0", &json!({}));
    assert_eq!(world.told(), told(&[]));
}

/// kube-scheduler takes CPU and memory from pods of lower priority, and devices from none.
#[test]
fn room_counts_what_pods_of_lower_priority_hold() {
    let large = |priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "12"}}},
        ]})
    };
    let gang = |priority: i32, policy: &str| {
        let mut spec = large(priority);
        spec["preemptionPolicy"] = policy.into();
        spec
    };
    for (low, spec, expected) in [
        (10, gang(100, "PreemptLowerPriority"), "2 to f0"),
        (100, gang(100, "PreemptLowerPriority"), "NoRoom"),
        (10, gang(100, "Never"), "NoRoom"),
        (10, gang(0, "PreemptLowerPriority"), "NoRoom"),
    ] {
        let mut world = World::new(1, 2);
        world.plain("low", "f0-n0", &large(low));
        world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
        world.pod("a-0", "a", "d4", &spec);
        world.pod("a-1", "a", "d4", &spec);
        let found = world.told();
        assert!(found["a"].starts_with(expected), "{low} {spec}: {found:?}");
        if expected != "NoRoom" {
            // The pods that wait for the others to end have a place.
            world.release();
            world.bind_one("a-0", 1);
            world.set_unschedulable("a-1");
            assert_eq!(world.told(), told(&[]));
        }
    }
    // A fabric with free room comes first, although its name does not.
    let mut world = World::new(2, 2);
    world.plain("low", "f0-n0", &large(10));
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    (0..2).for_each(|index| world.pod(&format!("a-{index}"), "a", "d4", &large(100)));
    assert_eq!(world.told(), told(&[("a", "2 to f1")]));
    // Devices of pods with a lower priority stay theirs.
    let mut world = World::new(1, 2);
    world.gang("low", 1, "d4");
    world.release();
    world.bind(0);
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    (0..2).for_each(|index| world.pod(&format!("a-{index}"), "a", "d4", &large(100)));
    assert_told(&world, &[("a", "NoRoom")]);
}

/// Gates hide pods from autoscalers, so a group with a limited wait goes to a fabric that can grow.
#[test]
fn a_group_goes_to_a_fabric_that_can_grow_when_its_wait_is_over() {
    let mut world = World::new(2, 2);
    world.rules.growing = vec!["new".to_owned(), "f1".to_owned()];
    world.gang("a", 3, "d4");
    let told_now = world.told();
    assert!(told_now["a"].starts_with("TooLarge"), "{told_now:?}");
    assert!(
        told_now["a"].ends_with(
            "; or let an autoscaler add nodes to f1, by the annotation dranet.io/fabric-wait"
        ),
        "{told_now:?}"
    );
    for pod in world.of("a") {
        let pod = world.pods.get_mut(&pod).unwrap();
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::FABRIC_WAIT.to_owned(), "60".to_owned());
    }
    world.now = 59;
    assert_told(&world, &[("a", "TooLarge")]);
    world.now = 60;
    assert_eq!(world.told(), told(&[("a", "3 to f1 (Grows)")]));
    world.release();
    assert_eq!(world.told(), told(&[]));
    // The places that are there are taken, so that no other group gets them.
    world.gang("b", 1, "d4");
    assert_told(&world, &[("b", "1 to f0")]);
    world.bind(0);
    world.set_unschedulable("a-2");
    let found = world.told();
    assert_eq!(
        found["a"],
        "Growing: the group waits for new nodes of f1, where 0 of 1 waiting pods fit now: see the \
         events of the autoscaler"
    );
    world.add_node("f1-n2", "f1", &json!({}));
    assert_eq!(world.told(), told(&[("b", "1 to f0")]));
    assert!(world.bind(0).is_empty());
    // A fabric without nodes, since no pod can run on the other.
    let spec = json!({"nodeSelector": {"pool": "large"}});
    world.sizes.insert("c".to_owned(), Size { pods: 1, at_once: true });
    world.pod("c-0", "c", "d4", &spec);
    let annotations = world.pods.get_mut("c-0").unwrap().metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::FABRIC_WAIT.to_owned(), "1".to_owned());
    world.now += 1;
    assert_eq!(world.told()["c"], "1 to new (Grows)");
    // Without a fabric that can grow, the group waits.
    world.rules.growing.clear();
    assert_told(&world, &[("b", "1 to f0"), ("c", "TooLarge")]);
}

/// preemptor writes the devices of a gang into its claims before the gates are removed.
#[test]
fn a_gang_goes_where_its_devices_are() {
    let mut world = World::new(2, 3);
    world.add_domain("f1", Nvlink, "r0", 2);
    world.gang("a", 2, "d4");
    assert_eq!(world.told()["a"], "2 to f0");
    world.give("a-0", "f1-n0", DEVICES);
    world.give("a-1", "f1-r0-1", DEVICES);
    assert_eq!(world.told()["a"], "2 to f1");
    world.annotate("a", &[(annotation::FABRIC_LEVEL, "nvlink=preferred")]);
    assert_eq!(world.told()["a"], "2 to f1 1 in r0");
}

/// kube-scheduler may begin on any node of the fabric: all of its nodes that have a place must have room
/// for the whole gang.
#[test]
fn pods_that_must_share_a_node_have_room_wherever_the_first_goes() {
    let spec = |cpus: &str, affinity: &Value| {
        json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpus}}}],
            "affinity": affinity,
        })
    };
    let together = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"dranet.io/fabric-group": "a"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    for (fabrics, expected) in [(1, "NoRoom"), (2, "2 to f1")] {
        let mut world = World::new(fabrics, 2);
        world.plain("other", "f0-n0", &spec("8", &Value::Null));
        world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
        for pod in ["a-0", "a-1"] {
            world.pod(pod, "a", "d1", &spec("8", &together));
        }
        let found = world.told();
        assert!(found["a"].starts_with(expected), "{found:?}");
    }
}
