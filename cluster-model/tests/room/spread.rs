//! Topology spread constraints.

use super::*;

fn spread(key: &str, more: &Value) -> Value {
    let mut constraint = json!({
        "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "new"}},
    });
    json_patch::merge(&mut constraint, more);
    json!({"topologySpreadConstraints": [constraint]})
}

/// Nodes `a` of zone 1, `b` and `c` of zone 2, each with room for three pods; `c` has a taint. Pods of app
/// `new` run on these nodes.
fn zones(running: &[&str]) -> World {
    let mut world = World::default();
    for (name, zone, taints) in [
        ("a", "1", json!([])),
        ("b", "2", json!([])),
        ("c", "2", json!([{"key": "t", "effect": "NoSchedule"}])),
    ] {
        let node = json!({"metadata": {"labels": {"zone": zone}}, "spec": {"taints": taints}});
        world.node(name, 0, &node);
    }
    for (number, node) in running.iter().enumerate() {
        let mut pod = pod(&json!({"nodeName": node}));
        pod.metadata.name = Some(format!("new-{number}"));
        world.nodes.apply_pod(&pod);
    }
    world
}

#[test]
fn a_domain_has_at_most_the_skew_more_pods_than_the_one_with_the_fewest() {
    let none = json!({});
    let only_two = json!({"nodeSelector": {"zone": "2"}});
    let with = |spread: &Value, more: &Value| {
        let mut spec = spread.clone();
        json_patch::merge(&mut spec, more);
        spec
    };
    let zone = |more: Value| spread("zone", &more);
    for (running, spec, fits, count) in [
        (&[][..], zone(none.clone()), &["a", "b"][..], 6),
        (&["a"], zone(none.clone()), &["b"], 5),
        (&["b"], zone(none.clone()), &["a"], 5),
        // A pod on a node with a taint counts, unless taints are honored.
        (&["c"], zone(none.clone()), &["a"], 6),
        (&["c"], zone(json!({"nodeTaintsPolicy": "Honor"})), &["a", "b"], 6),
        (&["a", "a"], zone(json!({"maxSkew": 2})), &["b"], 4),
        (&["a", "a"], zone(json!({"maxSkew": 3})), &["a", "b"], 4),
        // Zone 1 does not count for a pod that cannot go there, unless it says so.
        (&["b"], with(&zone(none.clone()), &only_two), &["b"], 2),
        (&["b"], with(&zone(json!({"nodeAffinityPolicy": "Ignore"})), &only_two), &[], 0),
        // With fewer domains than asked for, the fewest pods are 0.
        (&["a"], zone(json!({"minDomains": 3})), &["b"], 1),
        // Pods of another kind, and of another generation, do not count.
        (&["a"], zone(json!({"labelSelector": {"matchLabels": {"app": "x"}}})), &["a", "b"], 5),
        (&["a"], zone(json!({"matchLabelKeys": ["app"], "labelSelector": {}})), &["b"], 5),
        // Without a selector no pod counts.
        (&["a"], zone(json!({"labelSelector": null})), &["a", "b"], 5),
        // A node without the label is in no domain.
        (&[], spread("rack", &none), &[], 0),
        (&["a"], zone(json!({"whenUnsatisfiable": "ScheduleAnyway"})), &["a", "b"], 5),
    ] {
        let world = zones(running);
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let ask = Arc::new(Ask::new(&pod(&spec)));
        let found = room.attempt(&ask, ["a", "b", "c"]).unwrap();
        assert_eq!(found.fits(), fits, "{running:?} {spec}");
        assert_eq!(room.count(&ask, ["a", "b", "c"]), count, "{running:?} {spec}");
        let mut taken = 0;
        let mut filled = room.clone();
        while filled
            .attempt(&ask, ["a", "b"])
            .unwrap()
            .fits()
            .iter()
            .any(|node| filled.take(&ask, 1, [*node]) == 1)
        {
            taken += 1;
        }
        assert_eq!(taken, count, "one by one: {running:?} {spec}");
    }
    let why = zones(&["a"]).why_not(&zone(none));
    assert_eq!(why, Some(WhyNot::Spread { domains: "zone".into() }));
}
