use super::*;
use crate::Member;
use crate::size::{Owner, Size};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn pod(name: &str, spec: &Value, phase: &str) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"dranet.io/fabric": "same"},
            "labels": {"dranet.io/fabric-group": "g"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true,
            }],
        },
        "spec": {"containers": [], "schedulingGroup": {"podGroupName": "dranet-g"}},
        "status": {"phase": phase},
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn group(pods: &[Pod], size: Option<Size>) -> Group {
    let (keys, members): (Vec<_>, Vec<_>) = pods.iter().filter_map(Member::new).unzip();
    Group { key: keys[0].clone(), members, size, is_expensive: false }
}

fn waiting_pods(count: usize) -> Vec<Pod> {
    (0..count).map(|index| pod(&format!("p{index}"), &json!({}), "Pending")).collect()
}

fn made(group: &Group, version: &str) -> MadePodGroups {
    let mut object = build(group);
    object.metadata.uid = Some("u".to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    let mut made = MadePodGroups::default();
    made.apply(&object);
    made
}

const FOUR: Option<Size> = Some(Size { pods: 4, at_once: true });

/// Created for the first pod, before the others exist: the scheduler waits for them.
#[test]
fn a_pod_group_is_created_for_the_first_waiting_pod() {
    let classed = json!({"priority": 7, "priorityClassName": "high"});
    let group = group(&[pod("a", &classed, "Pending")], FOUR);
    let writes = due(std::iter::once(&group), &MadePodGroups::default());
    let [(key, PodGroupWrite::Create(object))] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(*key, group.key);
    let expected = json!({
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": "dranet-g", "namespace": "n", "labels": {"dranet.io/fabric-group": "g"},
            },
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "topology.dranet.io/fabric"}]},
                "priorityClassName": "high",
            },
    });
    assert_eq!(serde_json::to_value(object).unwrap(), expected);
    assert_eq!(waiting(&group), Some(WaitingReason::NotWhole { have: 1, want: 4 }));
    let owner = Owner::new(&pod("a", &json!({}), "Pending"), "same").unwrap();
    assert_eq!(owner.kind, "Job", "the PodGroup that is made says nothing of its own");
}

/// With a minimum, pods that are created one after another would wait forever.
#[test]
fn a_group_that_is_not_created_at_once_gets_no_minimum() {
    let in_order = Some(Size { pods: 4, at_once: false });
    for size in [None, in_order] {
        let writes = due([group(&waiting_pods(1), size)].iter(), &MadePodGroups::default());
        let [(_, PodGroupWrite::Create(object))] = &writes[..] else { panic!("{writes:?}") };
        assert!(object.spec.scheduling_policy.gang.is_none());
        assert!(object.spec.scheduling_policy.basic.is_some());
        assert!(has_constraint(object));
    }
}

#[test]
fn pod_groups_are_resized_and_deleted_with_their_groups() {
    let whole = group(&waiting_pods(4), FOUR);
    let made = made(&whole, "5");
    assert_eq!(due(std::iter::once(&whole), &made), []);
    assert_eq!(waiting(&whole), None, "the scheduler says why it waits");

    let smaller = Group { size: Some(Size { pods: 2, at_once: true }), ..whole.clone() };
    let resize = PodGroupWrite::SetMinCount { version: "5".to_owned(), min_count: 2 };
    assert_eq!(due([smaller].iter(), &made), [(whole.key.clone(), resize)]);

    let running =
        (0..4).map(|index| pod(&format!("p{index}"), &json!({"nodeName": "a"}), "Running"));
    let running = group(&running.collect::<Vec<_>>(), Some(Size { pods: 3, at_once: true }));
    assert_eq!(due([running].iter(), &made), [], "of a group that runs nothing waits");

    let delete = PodGroupWrite::Delete { uid: "u".to_owned(), version: "5".to_owned() };
    assert_eq!(due([].iter(), &made), [(whole.key, delete)]);
}

/// The size of a StatefulSet includes ended pods, which the scheduler does not count.
#[test]
fn pods_that_have_ended_are_not_waited_for() {
    let mut pods = waiting_pods(3);
    pods.push(pod("done", &json!({"nodeName": "a"}), "Succeeded"));
    let minimum = |pods: &[Pod]| min_count(&group(pods, FOUR));
    assert_eq!(minimum(&pods), Some(4), "the size of a Job counts without them");
    for pod in &mut pods {
        pod.metadata.owner_references = None;
    }
    assert_eq!(minimum(&pods), Some(3));
}

#[test]
fn foreign_pod_groups_and_gated_pods_are_left_alone() {
    let mut made = MadePodGroups::default();
    let mut foreign = build(&group(&waiting_pods(1), FOUR));
    foreign.metadata.name = Some("mine".to_owned());
    foreign.metadata.uid = Some("u".to_owned());
    foreign.metadata.resource_version = Some("1".to_owned());
    made.apply(&foreign);
    assert_eq!(due([].iter(), &made), []);

    let gate = json!({"schedulingGroup": null, "schedulingGates": [{"name": "dranet.io/fabric"}]});
    let gated = group(&[pod("a", &gate, "Pending")], FOUR);
    assert_eq!(waiting(&gated), None, "it is placed by its gates");
    assert_eq!(due([gated].iter(), &made), []);
}
