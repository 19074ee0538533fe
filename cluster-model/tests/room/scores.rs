//! The points with which kube-scheduler prefers nodes.

use super::*;
use cluster_model::room::{Images, Preferences};
use k8s_openapi::api::core::v1::{PersistentVolume, Service};
use k8s_openapi::api::storage::v1::StorageClass;

/// The images of the nodes of a world: none.
fn no_images(nodes: &[&str]) -> Images {
    let mut images = Images::default();
    for name in nodes {
        images.add(&from(json!({"metadata": {"name": name}, "status": {"images": []}})));
    }
    images
}

/// The points of nodes for a pod, and by how much they may differ.
fn points(world: &World, spec: &Value, nodes: &[&str], images: &Images) -> (Vec<i64>, i64) {
    let pod = pod(spec);
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let scores = room.scores((&Ask::new(&pod), &Preferences::new(&pod)), nodes, images).unwrap();
    (scores.points, scores.unknown)
}

/// The points of node `a` less those of node `b`.
fn difference(world: &World, spec: &Value) -> i64 {
    let (points, unknown) = points(world, spec, &["a", "b"], &no_images(&["a", "b"]));
    assert_eq!(unknown, 0, "{spec}");
    points[0] - points[1]
}

/// Two nodes of 4 CPUs and 8 GiB in zones `z` and `y`.
fn world() -> World {
    let mut world = World::default();
    for (name, zone) in [("a", "z"), ("b", "y")] {
        let labels = json!({"zone": zone, "topology.kubernetes.io/zone": zone});
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "9"});
        let node = json!({"metadata": {"labels": labels}, "status": {"allocatable": allocatable}});
        world.node(name, 0, &node);
    }
    let service = json!({"metadata": {"name": "kubernetes", "namespace": "default"}});
    world.view.apply(from::<Service>(service)).unwrap();
    world
}

fn requests(cpu: &str, memory: &str) -> Value {
    let requests = json!({"cpu": cpu, "memory": memory});
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]})
}

/// Least allocated: the mean of the free parts. Balanced: more if the parts in use become more equal.
#[test]
fn free_and_even_nodes_are_preferred() {
    let mut world = world();
    assert_eq!(difference(&world, &requests("1", "2Gi")), 0);
    world.run("x", "a", &requests("2", "2Gi"));
    // 25 and 50 of 100 stay free on `a`, 75 and 75 on `b`; the use of both stays as even as it is.
    assert_eq!(difference(&world, &requests("1", "2Gi")), 37 - 75);
    // The pod makes the use of `a` more even, that of `b` less.
    assert_eq!(difference(&world, &requests("0", "2Gi")), 50 - 87 + 81 - 68);
    // A pod without requests counts as 100m and 200 MiB, and is not balanced.
    let none = json!({"containers": [{"name": "c", "image": "i"}]});
    assert_eq!(difference(&world, &none), 59 - 97);
}

#[test]
fn what_pods_and_nodes_prefer_counts() {
    let near = |kind: &str, weight: i64| {
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
        let preferred = json!([{"weight": weight, "podAffinityTerm": term}]);
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
    };
    let of_nodes = |zone: &str, weight: i64| {
        let selected = json!([{"key": "zone", "operator": "In", "values": [zone]}]);
        let term = json!({"weight": weight, "preference": {"matchExpressions": selected}});
        json!({"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [term],
        }}})
    };
    let spread = json!({"topologySpreadConstraints": [{
        "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }]});
    for (spec, expected) in [
        (json!({}), 0),
        (of_nodes("z", 1), 200),
        (of_nodes("y", 50), -200),
        (near("podAffinity", 1), 200),
        (near("podAntiAffinity", 1), -200),
        (spread.clone(), -200),
    ] {
        let mut world = world();
        world.run("x", "a", &json!({"containers": []}));
        let base = difference(&world, &json!({}));
        assert_eq!(difference(&world, &spec) - base, expected, "{spec}");
    }
    // The affinity of a pod that runs draws others near; preferred anti-affinity keeps them apart.
    for (kind, required, expected) in
        [("podAffinity", true, 200), ("podAffinity", false, 200), ("podAntiAffinity", false, -200)]
    {
        let term = json!({"topologyKey": "zone", "labelSelector": {}});
        let terms = if required {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
        } else {
            let preferred = json!([{"weight": 7, "podAffinityTerm": term}]);
            json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred})
        };
        let mut world = world();
        world.run("x", "a", &json!({"containers": []}));
        let base = difference(&world, &json!({}));
        world.run("x", "a", &json!({"containers": [], "affinity": {kind: terms}}));
        assert_eq!(difference(&world, &json!({})) - base, expected, "{kind} {required}");
    }
}

#[test]
fn taints_that_are_not_tolerated_count_against_a_node() {
    let mut world = world();
    let taints = json!([{"key": "t", "effect": "PreferNoSchedule"}]);
    world.node(
        "a",
        0,
        &json!({"spec": {"taints": taints}, "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"},
        }}),
    );
    assert_eq!(difference(&world, &json!({})), -300);
    let tolerations = json!({"tolerations": [{"key": "t", "operator": "Exists"}]});
    assert_eq!(difference(&world, &tolerations), 0);
}

/// kube-scheduler spreads the pods that a Service selects, whose constraints nobody wrote.
#[test]
fn pods_of_a_service_are_spread() {
    let mut world = world();
    let running = |world: &mut World| {
        let mut pod = pod(&json!({"nodeName": "a", "containers": []}));
        pod.metadata.name = Some("other".to_owned());
        world.nodes.apply_pod(&pod);
    };
    running(&mut world);
    let base = difference(&world, &json!({}));
    let selector = json!({"app": "new"});
    let service =
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"selector": selector}});
    world.view.apply(from::<Service>(service)).unwrap();
    // 9 and 6 pods by weights and skews: fewer are better, in relation to the most.
    assert_eq!(difference(&world, &json!({})) - base, 2 * (100 * 6 / 9 - 100));
}

#[test]
fn large_images_draw_pods_to_their_nodes() {
    let mut images = Images::default();
    let mib = 1024 * 1024;
    let image = json!({"names": ["i:latest"], "sizeBytes": 1046 * mib});
    images.add(&from(json!({"metadata": {"name": "a"}, "status": {"images": [image]}})));
    images.add(&from(json!({"metadata": {"name": "b"}, "status": {"images": []}})));
    let world = world();
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let (found, unknown) = points(&world, &spec, &["a", "b"], &images);
    // Half of the nodes have it: 523 of 1000 MiB count, less the first 23.
    assert_eq!((found[0] - found[1], unknown), (100 * 500 / 977, 0));
    images.add(&from(json!({"metadata": {"name": "b"}, "status": {}})));
    let (_, unknown) = points(&world, &spec, &["a", "b"], &images);
    assert_eq!(unknown, 100, "the images of a node are not known");
}

/// The first alternative of a list is worth 8, the second 7, of the most of all nodes.
#[test]
fn devices_of_the_first_alternatives_are_preferred() {
    let mut world = World::new(&[("a", 1), ("b", 2)]);
    let ways = json!([
        {"name": "two", "deviceClassName": "nic", "count": 2},
        {"name": "one", "deviceClassName": "nic", "count": 1},
    ]);
    let requests = json!([{"name": "r", "firstAvailable": ways}]);
    world
        .view
        .apply(from::<ResourceClaimTemplate>(json!({
            "metadata": {"name": "list", "namespace": "n"},
            "spec": {"spec": {"devices": {"requests": requests}}},
        })))
        .unwrap();
    let service = json!({"metadata": {"name": "kubernetes", "namespace": "default"}});
    world.view.apply(from::<Service>(service)).unwrap();
    let base = difference(&world, &by_template("d1"));
    assert_eq!(difference(&world, &by_template("list")) - base, 2 * (87 - 100));
}

#[test]
fn volumes_that_fit_tightly_count_less() {
    let mut world = world();
    world
        .view
        .apply(from::<StorageClass>(json!({
            "metadata": {"name": "c"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        })))
        .unwrap();
    for (name, size) in [("a", "4Gi"), ("b", "2Gi")] {
        let node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [name]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}});
        world.view.apply(from::<PersistentVolume>(json!({
            "metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {
                "storageClassName": "c", "capacity": {"storage": size}, "nodeAffinity": affinity,
                "accessModes": ["ReadWriteOnce"],
            },
        })))
        .unwrap();
    }
    let template = json!({"spec": {
        "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let spec = json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]});
    assert_eq!(difference(&world, &spec), 75 - 50);
}

#[test]
fn what_is_not_known_makes_points_unsure() {
    let mut world = World::default();
    world.node("a", 0, &json!({}));
    let of_file: Node = from(json!({"metadata": {"name": "a"}}));
    world.nodes.apply_of_file(&of_file);
    // Neither what is free and even, nor images, nor Services.
    let (_, unknown) = points(&world, &requests("1", "1Gi"), &["a"], &Images::default());
    assert_eq!(unknown, 100 + 100 + 100 + 200);
}
