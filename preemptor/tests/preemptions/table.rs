//! Single cases.

use super::world::{Devices, NAMESPACE, World, any, from, key, near, started};
use cluster_model::names::job_label;
use k8s_openapi::api::core::v1::Pod;
use preemptor::Selection;
use serde_json::{Value, json};

fn none() -> Value {
    json!({})
}

/// Two nodes of two cells each, full of pods that have a cell each.
fn full() -> World {
    let mut world = World::new();
    for (node, pods) in [("a", [("a0", 1), ("a1", 5)]), ("b", [("b0", 3), ("b1", 4)])] {
        world.node(node, 2, &none());
        for (name, priority) in pods {
            assert!(world.run(name, (priority, node), near(2, 2), &none()));
        }
    }
    world
}

#[test]
fn the_pod_of_the_lowest_priority_leaves() {
    let mut world = full();
    world.wait("high", 10, near(2, 2), &none());
    assert_eq!(world.told(), "high on a for a0");
    let preemption = world.decide().preemption.unwrap();
    let kept: Vec<&str> = preemption.kept.iter().map(|device| &*device.device).collect();
    assert_eq!(kept, ["nic0", "nic1", "gpu0", "gpu1"]);
    let claims = &preemption.placements[0].claims;
    assert_eq!(claims[0].claim, key("high"));
    assert_eq!(claims[0].allocation.results.len(), 4);
}

/// A whole node is needed: the highest priority of those that leave counts first.
#[test]
fn the_highest_priority_of_those_that_leave_counts_first() {
    let mut world = full();
    world.wait("high", 10, any(4, 4), &none());
    assert_eq!(world.told(), "high on b for b0, b1");
}

#[test]
fn nobody_leaves_without_need_or_use() {
    for (priority, devices, more, expected) in [
        (10, near(2, 2), json!({"spec": {"preemptionPolicy": "Never"}}), "high: NeverPreempts"),
        (1, near(2, 2), none(), "high: NobodyIsLower"),
        (2, near(3, 1), none(), "high: DoesNotHelp"),
        (2, any(4, 4), none(), "high: DoesNotHelp"),
        (10, Devices::default(), none(), ""),
        (10, near(2, 2), json!({"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}), ""),
        // Its scheduler does not run, or has not looked at it yet.
        (10, near(2, 2), json!({"status": {"conditions": []}}), ""),
        (10, near(2, 2), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), ""),
    ] {
        let mut world = full();
        world.wait("high", priority, devices, &more);
        assert_eq!(world.told(), expected, "{priority} {devices:?} {more}");
    }
}

#[test]
fn a_pod_that_fits_is_left_to_the_scheduler() {
    let mut world = full();
    world.end("b1");
    world.wait("high", 10, near(2, 2), &none());
    assert_eq!(world.told(), "");
    // Only one of two fits.
    world.wait("second", 9, near(2, 2), &none());
    assert_eq!(world.told(), "second on a for a0");
}

/// kube-scheduler evicts for CPU; only devices are ours.
#[test]
fn a_pod_that_lacks_only_cpu_is_left_to_the_scheduler() {
    let mut world = World::new();
    world.node("a", 2, &none());
    let cpu = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    assert!(world.run("low", (0, "a"), Devices::default(), &cpu("10")));
    assert!(world.run("gpus", (1, "a"), near(2, 2), &cpu("4")));
    world.wait("high", 10, near(2, 2), &cpu("8"));
    assert_eq!(world.told(), "");
    world.end("high");
    // Both lack: who has the devices leaves, and who has the CPU.
    world.wait("high", 10, any(4, 4), &cpu("8"));
    assert_eq!(world.told(), "high on a for low, gpus");
}

#[test]
fn a_budget_that_allows_no_disruption_is_kept() {
    let mut world = full();
    let of_app = json!({"metadata": {"labels": {"app": "db"}}});
    world.end("a0");
    assert!(world.run("a0", (1, "a"), near(2, 2), &of_app));
    world.budget("db", 0);
    world.wait("high", 10, near(2, 2), &none());
    assert_eq!(world.told(), "high on b for b0");
    world.end("high");
    world.wait("high", 2, near(2, 2), &none());
    assert_eq!(world.told(), "high: BudgetForbids");
    world.rules.may_violate_budgets = true;
    assert_eq!(world.told(), "high on a for a0");
    let victims = world.decide().preemption.unwrap().victims;
    assert_eq!(victims[0].pods[0].violates, Some(key("db")));
    world.budget("db", 1);
    world.rules.may_violate_budgets = false;
    assert_eq!(world.told(), "high on a for a0");
}

#[test]
fn the_rules_of_the_operator_hold() {
    let only = |name: &str| Some([name.to_owned()].into());
    let mut world = full();
    world.wait("high", 10, near(2, 2), &json!({"spec": {"priorityClassName": "prod"}}));
    for (preemptors, victims, expected) in [
        (only(NAMESPACE), None, "high on a for a0"),
        (only("other"), None, "high: NotAllowed"),
        (None, only("other"), "high: VictimsNotAllowed"),
    ] {
        world.rules.preemptors = Selection { namespaces: preemptors, priority_classes: None };
        world.rules.victims = Selection { namespaces: victims, priority_classes: None };
        assert_eq!(world.told(), expected);
    }
    world.rules.victims = Selection::default();
    world.rules.preemptors = Selection { namespaces: None, priority_classes: only("prod") };
    assert_eq!(world.told(), "high on a for a0");
    world.rules.preemptors = Selection { namespaces: None, priority_classes: only("batch") };
    assert_eq!(world.told(), "high: NotAllowed");
}

/// Pods of an indexed Job on both nodes: one cannot leave without the other.
#[test]
fn a_gang_leaves_as_a_whole() {
    let mut world = World::new();
    let of_job = json!({"metadata": {
        "labels": {job_label::COMPLETION_INDEX: "0"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": true},
        ],
    }});
    for node in ["a", "b"] {
        world.node(node, 1, &none());
        assert!(world.run(&format!("train-{node}"), (1, node), near(2, 2), &of_job));
    }
    world.wait("high", 10, near(2, 2), &none());
    assert_eq!(world.told(), "high on a for train-a+train-b");
    let decided = world.decide().preemption.unwrap();
    assert_eq!(decided.victims[0].job.as_deref(), Some("Job team/train"));
    // Else the pod could get these while the other still runs.
    let freed: Vec<(&str, &str)> =
        decided.freed.iter().map(|device| (&*device.pool, &*device.device)).collect();
    assert_eq!(freed, [("b", "nic0"), ("b", "nic1"), ("b", "gpu0"), ("b", "gpu1")]);
    // A single pod of a higher priority costs more than both.
    world.node("c", 1, &none());
    assert!(world.run("mid", (2, "c"), near(2, 2), &none()));
    assert_eq!(world.told(), "high on a for train-a+train-b");
    // Two pods weigh more than one of the same priority.
    world.end("mid");
    assert!(world.run("low", (1, "c"), near(2, 2), &none()));
    assert_eq!(world.told(), "high on c for low");
    // A gang with a pod that is not lower stays.
    let mut other = of_job.clone();
    other["metadata"]["labels"][job_label::COMPLETION_INDEX] = "1".into();
    world.node("d", 1, &none());
    assert!(world.run("train-d", (50, "d"), near(2, 2), &other));
    world.end("low");
    world.node("c", 0, &none());
    assert_eq!(world.told(), "high: NobodyIsLower");
}

/// Of equal ones, the one leaves that started last, then the one with fewer GPU-hours.
#[test]
fn the_pod_that_started_last_leaves() {
    let mut world = World::new();
    for (node, seconds) in [("a", 500), ("b", 100), ("c", 300)] {
        world.node(node, 1, &none());
        assert!(world.run(node, (1, node), near(2, 2), &started(seconds)));
    }
    world.wait("high", 10, near(1, 1), &none());
    assert_eq!(world.told(), "high on b for b");
}

/// Of two cells that a pod frees, the other one is kept as well.
#[test]
fn all_that_is_freed_is_kept() {
    let mut world = World::new();
    world.node("a", 1, &none());
    assert!(world.run("low", (1, "a"), near(2, 2), &none()));
    world.wait("high", 10, near(1, 1), &none());
    let decided = world.decide().preemption.unwrap();
    assert_eq!((decided.kept.len(), decided.freed.len()), (2, 2));
}

/// One large pod leaves rather than two small ones of the same priority.
#[test]
fn fewer_pods_leave() {
    let mut world = World::new();
    world.node("a", 2, &none());
    for (name, devices) in [("small", any(1, 1)), ("large", any(2, 2)), ("tiny", any(1, 1))] {
        assert!(world.run(name, (1, "a"), devices, &started(100)));
    }
    world.wait("high", 10, any(2, 2), &none());
    assert_eq!(world.told(), "high on a for large");
}

/// A pod that leaves already is not evicted again, and what it has counts as free.
#[test]
fn pods_that_leave_already_are_waited_for() {
    let mut world = full();
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.end("b1");
    assert!(world.run("b1", (4, "b"), near(2, 2), &leaving));
    world.wait("high", 10, near(2, 2), &none());
    assert_eq!(world.told(), "");
}

/// While a preemption is under way, what it places is taken, and its node is left alone.
#[test]
fn a_second_preemption_leaves_the_first_one_alone() {
    let mut world = full();
    world.wait("first", 10, near(2, 2), &none());
    world.wait("second", 9, near(2, 2), &none());
    let first = world.decide().preemption.unwrap();
    world.begun.push(first);
    assert_eq!(world.told(), "second on b for b0");
    world.end("a0");
    assert_eq!(world.told(), "second on b for b0");
}

/// The device plugin's GPUs are counted by limits, and the NICs by a claim: who leaves must have both.
#[test]
fn pods_with_gpus_of_a_device_plugin_must_have_the_nics_too() {
    let mut world = World::new();
    world.node("a", 2, &none());
    let gpus = |count: &str| {
        json!({"spec": {"containers": [{"name": "c", "resources": {
            "requests": {"nvidia.com/gpu": count}, "limits": {"nvidia.com/gpu": count},
        }}]}})
    };
    assert!(world.run("gpus", (0, "a"), Devices::default(), &gpus("2")));
    assert!(world.run("both", (1, "a"), any(0, 4), &gpus("2")));
    // kube-scheduler evicts for the GPUs alone.
    world.wait("high", 10, any(0, 2), &gpus("2"));
    assert_eq!(world.told(), "high on a for both");
    world.end("both");
    assert!(world.run("nics", (1, "a"), any(0, 4), &none()));
    assert_eq!(world.told(), "high on a for nics");
}

/// Two pods use a claim: its devices are free when both have left.
#[test]
fn a_shared_claim_is_free_when_all_its_pods_have_left() {
    let mut world = World::new();
    world.node("a", 1, &none());
    assert!(world.run("one", (1, "a"), near(2, 2), &none()));
    let shares =
        json!({"spec": {"resourceClaims": [{"name": "devices", "resourceClaimName": "one"}]}});
    let mut by_name = from::<Pod>(json!({
        "metadata": {"name": "one", "namespace": NAMESPACE, "uid": "one"},
        "spec": {"priority": 1, "nodeName": "a", "containers": [],
            "resourceClaims": shares["spec"]["resourceClaims"]},
    }));
    world.apply(&by_name);
    by_name.metadata.name = Some("two".to_owned());
    by_name.metadata.uid = Some("two".to_owned());
    world.apply(&by_name);
    world.wait("high", 10, near(1, 1), &none());
    assert_eq!(world.told(), "high on a for one, two");
    by_name.spec.as_mut().unwrap().priority = Some(20);
    world.apply(&by_name);
    assert_eq!(world.told(), "high: DoesNotHelp");
}
