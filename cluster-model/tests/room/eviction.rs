//! Pods that are bound and then evicted.

use super::*;
use cluster_model::predict::Fit;

/// The time after which a pod with these tolerations of a node and of a device is evicted.
fn evicted(effect: &str, own: &Value, of_device: &Value) -> Vec<(i64, bool)> {
    let mut world = World::new(&[]);
    world.node(NODE, 1, &json!({"spec": {"taints": [{"key": "n", "effect": effect}]}}));
    let slice: ResourceSlice = from(json!({
        "metadata": {"name": NODE},
        "spec": {
            "driver": "d", "nodeName": NODE,
            "devices": [{"name": "n0", "taints": [{"key": "t", "effect": effect}]}],
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        },
    }));
    world.view.apply(slice).unwrap();
    let request = json!({"deviceClassName": "nic", "count": 1, "tolerations": of_device});
    world.template("tolerant", &request);
    let mut spec = by_template("tolerant");
    spec["tolerations"] = own.clone();
    let ask = Ask::new(&pod(&spec));
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let attempt = room.attempt(&ask, [NODE]).unwrap();
    let (_, result) = attempt.each().next().unwrap();
    let allocations = match result {
        Prediction::Fits(Fit { allocations, .. }) => Some(allocations),
        Prediction::No(_) => None,
    };
    let eviction = room.eviction(NODE, &ask, &allocations.unwrap());
    eviction.map(|eviction| (eviction.seconds, eviction.device.is_some())).into_iter().collect()
}

#[test]
fn a_taint_that_is_tolerated_for_a_time_evicts_later() {
    let for_ever = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    let any = json!([{"operator": "Exists"}]);
    let for_time = |seconds: i64| json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    for (own, of_device, expected) in [
        (&for_ever, &for_ever, vec![]),
        (&any, &for_ever, vec![]),
        // The controller that evicts ignores tolerations of devices without an effect.
        (&any, &any, vec![(0, true)]),
        (&for_ever, &for_time(3), vec![(3, true)]),
        (&for_time(60), &for_ever, vec![(60, false)]),
        (&for_time(60), &for_time(90), vec![(60, false)]),
        (&for_time(-5), &for_ever, vec![(0, false)]),
    ] {
        assert_eq!(evicted("NoExecute", own, of_device), expected, "{own} {of_device}");
    }
    let no_schedule = json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    assert_eq!(evicted("NoSchedule", &no_schedule, &no_schedule), []);
}
