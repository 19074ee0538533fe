//! Jobs that need one fabric.

use super::world::{World, any, near};
use cluster_model::fabric_level::FabricLevel;
use cluster_model::names::{annotation, label};
use serde_json::{Value, json};

fn none() -> Value {
    json!({})
}

/// Fabrics of two nodes of one cell each, each full with a pod of these priorities.
fn fabrics(priorities: &[(&str, [i32; 2])]) -> World {
    let mut world = World::new();
    for (fabric, priorities) in priorities {
        for (number, priority) in priorities.iter().enumerate() {
            let node = format!("{fabric}{number}");
            world.node(&node, 1, &json!({label::NODE_FABRIC: fabric}));
            assert!(world.run(&format!("low-{node}"), (*priority, &node), near(2, 2), &none()));
        }
    }
    world
}

fn gang(world: &mut World, priority: i32, pods: usize) {
    world.sizes.insert("train".to_owned(), pods);
    for number in 0..pods {
        world.gated(&format!("train-{number}"), "train", priority, near(2, 2));
    }
}

#[test]
fn a_group_gets_room_on_one_fabric() {
    let mut world = fabrics(&[("f", [1, 20]), ("g", [3, 4])]);
    gang(&mut world, 10, 2);
    assert_eq!(world.told(), "train-0 on g0, train-1 on g1 for low-g0, low-g1");
    let preemption = world.decide().preemption.unwrap();
    assert_eq!(preemption.fabric.as_deref(), Some("g"));
    assert_eq!(preemption.kept.len(), 8);
    assert!(preemption.placements.iter().all(|it| it.claims.len() == 1));
}

#[test]
fn the_fabric_with_the_least_harm_is_chosen() {
    let mut world = fabrics(&[("f", [1, 6]), ("g", [3, 4]), ("h", [5, 5])]);
    gang(&mut world, 10, 2);
    assert_eq!(world.told(), "train-0 on g0, train-1 on g1 for low-g0, low-g1");
    world.end("low-f1");
    assert_eq!(world.told(), "train-0 on f0, train-1 on f1 for low-f0");
}

#[test]
fn nobody_leaves_if_only_a_part_of_the_group_fits() {
    let mut world = fabrics(&[("f", [1, 20]), ("g", [20, 4])]);
    gang(&mut world, 10, 2);
    assert_eq!(world.told(), "train-0: DoesNotHelp");
    let mut world = fabrics(&[("f", [1, 2])]);
    gang(&mut world, 10, 2);
    world.end("train-1");
    assert_eq!(world.told(), "train-0: NotYet");
}

#[test]
fn a_group_stays_within_the_domains_that_it_requires() {
    let mut world = World::new();
    // Each NVLink domain has two nodes.
    for (number, priority) in [1, 20, 2, 3].into_iter().enumerate() {
        let node = format!("n{number}");
        let domain = format!("d{}", number / 2);
        let labels = json!({label::NODE_FABRIC: "f", FabricLevel::Nvlink.label(): domain});
        world.node(&node, 1, &labels);
        assert!(world.run(&format!("low-{node}"), (priority, &node), near(2, 2), &none()));
    }
    world.sizes.insert("train".to_owned(), 2);
    for number in 0..2 {
        let name = format!("train-{number}");
        let more = json!({
            "metadata": {
                "labels": {label::FABRIC_GROUP: "train"},
                "annotations": {annotation::FABRIC: "train", annotation::FABRIC_LEVEL: "nvlink"},
            },
            "spec": {"schedulingGates": [{"name": cluster_model::names::GATE_FABRIC}]},
        });
        world.wait(&name, 10, near(2, 2), &more);
    }
    assert_eq!(world.told(), "train-0 on n2, train-1 on n3 for low-n2, low-n3");
    let preemption = world.decide().preemption.unwrap();
    assert_eq!(preemption.placements[0].domains[0].name, "d1");
}

/// A group that runs elsewhere leaves as a whole; of one that has more pods than it needs, some can go.
#[test]
fn a_group_is_a_victim_as_a_whole_unless_it_has_pods_to_spare() {
    let mut world = World::new();
    for number in 0..3 {
        let node = format!("n{number}");
        world.node(&node, 1, &json!({label::NODE_FABRIC: "f"}));
        let more = json!({"metadata": {
            "labels": {label::FABRIC_GROUP: "old"}, "annotations": {annotation::FABRIC: "old"},
        }});
        assert!(world.run(&format!("old-{number}"), (1, &node), near(2, 2), &more));
    }
    world.wait("high", 10, any(1, 1), &none());
    world.sizes.insert("old".to_owned(), 3);
    assert_eq!(world.told(), "high on n0 for old-0+old-1+old-2");
    world.sizes.insert("old".to_owned(), 2);
    assert_eq!(world.told(), "high on n2 for old-2");
}
