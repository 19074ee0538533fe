//! Pods of lower priority that give way.

use super::*;
use cluster_model::room::Delay;

/// Pods of lower priority give way, as few and as unimportant ones as possible; devices are not freed.
#[test]
fn pods_of_lower_priority_give_way() {
    let mut world = World::new(&[(NODE, 1), ("b", 1)]);
    let with = |cpu: &str, priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}},
        ]})
    };
    for (name, node, cpu, priority) in [
        ("low", NODE, "3", 1),
        ("tiny", NODE, "1", 1),
        ("mid", "b", "2", 5),
        ("high", "b", "2", 50),
    ] {
        world.run(name, node, &with(cpu, priority));
    }
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let preempt = |spec: &Value| {
        let found = room.preempt(&Ask::new(&pod(spec)), [NODE, "b"]).unwrap();
        found.map(|it| (it.node, it.victims.into_iter().map(|key| key.name).collect::<Vec<_>>()))
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(preempt(&with("2", 10)), Some((NODE, named(&["low"]))));
    assert_eq!(preempt(&with("4", 10)), Some((NODE, named(&["low", "tiny"]))));
    assert_eq!(preempt(&with("2", 1)), None, "of the same priority");
    assert_eq!(preempt(&with("5", 100)), None, "too large for an empty node");
    let mut never = with("2", 10);
    never["preemptionPolicy"] = "Never".into();
    assert_eq!(preempt(&never), None);
    let mut on_b = with("2", 10);
    on_b["nodeSelector"] = json!({"kubernetes.io/hostname": "b"});
    assert_eq!(preempt(&on_b), Some(("b", named(&["mid"]))));
    let mut with_device = with("2", 10);
    with_device["resourceClaims"] = by_template("d2")["resourceClaims"].clone();
    assert_eq!(preempt(&with_device), None, "no node has two devices");
}

/// The sum counts each victim, so that fewer leave (`pickOneNodeForPreemption`).
#[test]
fn fewer_pods_of_lower_priority_give_way() {
    let mut world = World::new(&[(NODE, 0), ("b", 0)]);
    let with = |cpu: &str, priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}},
        ]})
    };
    for (name, node, cpu, priority) in [
        ("p", NODE, "2", 5),
        ("q", NODE, "1", 0),
        ("r", NODE, "1", 0),
        ("s", "b", "2", 5),
        ("t", "b", "2", 4),
    ] {
        world.run(name, node, &with(cpu, priority));
    }
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let found = room.preempt(&Ask::new(&pod(&with("4", 10))), [NODE, "b"]).unwrap().unwrap();
    assert_eq!((found.node, found.victims.len()), ("b", 2));
}

/// Not only CPU: kube-scheduler evicts pods for host ports, and for pods that keep others apart.
#[test]
fn pods_that_are_in_the_way_give_way() {
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}},
    ]}});
    let port = json!([{"name": "c", "ports": [{"containerPort": 1, "hostPort": 7}]}]);
    for (running, asked) in [
        (json!({"containers": port}), json!({"containers": port})),
        (json!({"containers": []}), json!({"containers": [], "affinity": anti})),
        (json!({"containers": [], "affinity": anti}), json!({"containers": []})),
    ] {
        let mut world = World::new(&[(NODE, 0)]);
        let with = |spec: &Value, priority: i32| {
            let mut spec = spec.clone();
            spec["priority"] = priority.into();
            spec
        };
        world.run("low", NODE, &with(&running, 1));
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let preempt = |priority| {
            let found = room.preempt(&Ask::new(&pod(&with(&asked, priority))), [NODE]).unwrap();
            found.map(|it| it.victims.len())
        };
        assert_eq!(preempt(1), None, "{asked}");
        assert_eq!(preempt(2), Some(1), "{asked}");
    }
}

/// When pods started decides between nodes on which as much harm is done.
#[test]
fn nodes_with_as_much_harm_are_equal() {
    let mut world = World::new(&[(NODE, 0), ("b", 0), ("c", 0)]);
    let with = |cpu: &str, priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}},
        ]})
    };
    for (name, node, priority) in [("p", NODE, 1), ("q", "b", 1), ("r", "c", 2)] {
        world.run(name, node, &with("4", priority));
    }
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let found = room.preempt(&Ask::new(&pod(&with("4", 9))), ["c", "b", NODE]).unwrap().unwrap();
    assert_eq!((found.node, found.equal), (NODE, vec![NODE, "b"]));
}

/// kube-scheduler hears of the last pod that leaves only by the plugins that have refused the pod.
#[test]
fn a_pod_is_tried_at_once_if_the_last_to_leave_was_in_its_way() {
    let port = json!([{"containerPort": 1, "hostPort": 7}]);
    let spec = |cpu: &str, ports: &Value, priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "ports": ports, "resources": {"requests": {"cpu": cpu}}},
        ]})
    };
    let none = json!([]);
    let large = ("large", spec("3", &none, 1));
    for (others, expected) in [
        // The one with the port leaves first: the pod was refused for the port, not for CPU.
        (vec![("guard", spec("0", &port, 2)), large.clone()], false),
        (vec![("guard", spec("0", &port, 0)), large.clone()], true),
        (vec![("guard", spec("0", &port, 0))], true),
        (vec![large.clone(), ("second", spec("1", &none, 1))], true),
    ] {
        let mut world = World::new(&[(NODE, 0)]);
        for (name, spec) in &others {
            world.run(name, NODE, spec);
        }
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let found = room.preempt(&Ask::new(&pod(&spec("4", &port, 10))), [NODE]).unwrap().unwrap();
        assert_eq!(found.victims.len(), others.len());
        assert_eq!(found.delay.is_none(), expected, "{others:?}");
    }
}

/// Nobody evicts it again, and nobody knows when it ends.
#[test]
fn a_pod_that_is_being_deleted_already_is_waited_for() {
    let spec = |priority: i32| {
        json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "4"}}},
        ]})
    };
    for (deleted, expected) in
        [(json!("2026-01-01T00:00:00Z"), Some(Delay::Ending)), (json!(null), None)]
    {
        let mut world = World::new(&[(NODE, 0)]);
        let mut running =
            pod(&json!({"priority": 1, "nodeName": NODE, "containers": spec(1)["containers"]}));
        running.metadata.deletion_timestamp = serde_json::from_value(deleted).unwrap();
        world.nodes.apply_pod(&running);
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let found = room.preempt(&Ask::new(&pod(&spec(9))), [NODE]).unwrap().unwrap();
        assert_eq!(found.delay, expected);
    }
}
