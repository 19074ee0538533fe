//! What may be written, case by case; and that two controllers never split a group, in
//! whatever order their steps run.

use super::*;
use cluster_model::names::job_label;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key() -> GroupKey {
    GroupKey { namespace: "n".to_owned(), label: "g".to_owned() }
}

fn pod(name: &str, is_gated: bool, fabric: Option<&str>) -> Pod {
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {label::FABRIC_GROUP: "g"},
            "annotations": {annotation::FABRIC: "same"},
        },
        "spec": {"containers": []},
    });
    if is_gated {
        value["spec"]["schedulingGates"] = json!([{"name": "other"}, {"name": GATE_FABRIC}]);
        if let Some(fabric) = fabric {
            value["metadata"]["annotations"][annotation::FABRIC_CHOSEN] = fabric.into();
        }
    } else if let Some(fabric) = fabric {
        value["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": with_label(None, label::NODE_FABRIC, fabric),
        }});
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn gates_are_removed_only_without_conflicts() {
    let gated = |name, fabric| pod(name, true, fabric);
    let released = |name, fabric| pod(name, false, Some(fabric));
    let mut moving = released("b", "1");
    moving
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(annotation::FABRIC_MOVES.into(), String::new());
    for (pods, expected) in [
        (vec![], Ok(vec![])),
        (vec![gated("a", Some("1"))], Ok(vec!["a"])),
        (vec![gated("a", None)], Err(Refusal::NotMarked("a".into()))),
        (vec![gated("a", Some("1")), gated("b", Some("2"))], Err(Refusal::NotMarked("b".into()))),
        // It needs no release itself, but still blocks the others.
        (vec![gated("a", Some("1")), gated("z", None)], Err(Refusal::NotMarked("z".into()))),
        (vec![gated("a", None), released("b", "1")], Ok(vec!["a"])),
        (vec![gated("a", Some("1")), released("b", "2")], Err(Refusal::Elsewhere("2".into()))),
        (vec![gated("a", Some("1")), moving], Err(Refusal::Evicting)),
    ] {
        let wanted = BTreeSet::from(["a", "b"]);
        let found = gate_removals(&key(), &pods, "1", &wanted, |_| None);
        let names = found.map(|all| all.into_iter().map(|it| it.pod).collect::<Vec<_>>());
        assert_eq!(names, expected.map(|all: Vec<&str>| all.into_iter().map(Into::into).collect()));
    }
}

/// Pods that must share a domain are released to the one that they are marked with.
#[test]
fn gates_are_removed_only_where_domains_agree() {
    let asks_for = |mut pod: Pod, levels: &str, size: Option<&str>, index: usize| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::FABRIC_LEVEL.to_owned(), levels.to_owned());
        let index = (job_label::COMPLETION_INDEX.to_owned(), index.to_string());
        annotations.extend([index]);
        annotations.extend(size.map(|size| (annotation::DOMAIN_SIZE.to_owned(), size.to_owned())));
        pod
    };
    let asks = |pod, size, index| asks_for(pod, "nvlink", size, index);
    let gated = |name, place| pod(name, true, Some(place));
    let released = |name, domain: &str| {
        let mut pod = pod(name, false, Some("1"));
        let affinity = with_label(None, label::NODE_FABRIC, "1");
        let affinity = with_label(Some(affinity), label::NODE_NVLINK, domain);
        let spec = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
        let node = spec.node_affinity.get_or_insert_default();
        node.required_during_scheduling_ignored_during_execution = Some(affinity);
        pod
    };
    let not = |name: &str| Err(Refusal::NotMarked(name.to_owned()));
    for (pods, size, expected) in [
        (vec![gated("a", "1,nvlink=x"), gated("b", "1,nvlink=x")], None, Ok(vec!["a", "b"])),
        (vec![gated("a", "1,nvlink=x"), gated("b", "1,nvlink=y")], None, not("b")),
        (vec![gated("a", "1"), gated("b", "1,nvlink=y")], None, not("a")),
        (vec![gated("a", "1,nvlink=x"), released("b", "x")], None, Ok(vec!["a"])),
        (
            vec![gated("a", "1,nvlink=x"), released("b", "y")],
            None,
            Err(Refusal::Elsewhere("NVLink domain y".to_owned())),
        ),
        // Slices of one pod, and of two.
        (vec![gated("a", "1,nvlink=x"), gated("b", "1,nvlink=y")], Some("1"), Ok(vec!["a", "b"])),
        (vec![gated("a", "1,nvlink=x"), gated("b", "1,nvlink=y")], Some("2"), not("b")),
    ] {
        let wanted = BTreeSet::from(["a", "b"]);
        let pods: Vec<_> =
            pods.into_iter().enumerate().map(|(index, pod)| asks(pod, size, index)).collect();
        let found = gate_removals(&key(), &pods, "1", &wanted, |_| None);
        let names = found.map(|all| all.into_iter().map(|it| it.pod).collect::<Vec<_>>());
        let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
        assert_eq!(names, expected, "{size:?}");
    }
    let pods = [asks(gated("a", "1,nvlink=x"), None, 0)];
    let found = gate_removals(&key(), &pods, "1", &BTreeSet::from(["a"]), |_| None).unwrap();
    let terms = &found[0].patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][1]["key"], label::NODE_NVLINK, "{terms}");

    // Slices share an NVLink domain, and all pods a block.
    let slices = |places: [&'static str; 2]| {
        let pods = places.iter().zip(["a", "b"]).enumerate().map(|(index, (place, name))| {
            asks_for(gated(name, place), "block,nvlink", Some("1"), index)
        });
        let pods: Vec<_> = pods.collect();
        gate_removals(&key(), &pods, "1", &BTreeSet::from(["a", "b"]), |_| None)
    };
    assert_eq!(slices(["1,nvlink=x,block=p", "1,nvlink=y,block=p"]).map(|it| it.len()), Ok(2));
    let split = slices(["1,nvlink=x,block=p", "1,nvlink=y,block=q"]);
    assert_eq!(split, Err(Refusal::NotMarked("b".to_owned())));
    let lacking = slices(["1,nvlink=x,block=p", "1,block=p"]);
    assert_eq!(lacking, Err(Refusal::NotMarked("b".to_owned())));
}

#[test]
fn the_fabric_is_added_to_every_term_and_the_rest_stays() {
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]});
    let mut with_terms = pod("a", true, Some("1"));
    with_terms.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": [],
    }}))
    .unwrap();
    let patches = [pod("a", true, Some("1")), with_terms]
        .map(|pod| gate_removal(&pod, "1", &[]).unwrap().patch);
    insta::assert_yaml_snapshot!(patches);
}

/// A pod of the group as the API server stores it: fabric annotation, whether released,
/// and version.
#[derive(Clone, Debug)]
struct Stored {
    fabric: Option<u8>,
    released: bool,
    version: u64,
}

type Store = BTreeMap<usize, Stored>;

/// A controller, with the releases that it has decided on but not written yet.
#[derive(Clone, Debug, Default)]
struct Controller {
    removals: Vec<GateRemoval>,
}

fn listed(store: &Store) -> Vec<Pod> {
    store
        .iter()
        .map(|(index, stored)| {
            let fabric = stored.fabric.map(|fabric| fabric.to_string());
            let mut pod = pod(&index.to_string(), !stored.released, fabric.as_deref());
            pod.metadata.resource_version = Some(stored.version.to_string());
            pod
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A controller marks a pod with this fabric.
    Mark { pod: usize, fabric: u8 },
    /// A controller lists the pods and decides which to release.
    List { controller: usize, fabric: u8 },
    /// A controller writes one of its releases.
    GateRemoval { controller: usize, which: usize },
    /// Another client changes a pod.
    Touch { pod: usize },
    /// A pod is created.
    Create { pod: usize },
    /// A pod is deleted; its name may be used again.
    Delete { pod: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let controller = 0..3_usize;
    let pod = 0..4_usize;
    prop_oneof![
        4 => (pod.clone(), 0..2_u8).prop_map(|(pod, fabric)| Event::Mark { pod, fabric }),
        3 => (controller.clone(), 0..2_u8)
            .prop_map(|(controller, fabric)| Event::List { controller, fabric }),
        4 => (controller, 0..4_usize)
            .prop_map(|(controller, which)| Event::GateRemoval { controller, which }),
        1 => pod.clone().prop_map(|pod| Event::Touch { pod }),
        1 => pod.clone().prop_map(|pod| Event::Create { pod }),
        1 => pod.prop_map(|pod| Event::Delete { pod }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Controllers mark any pods at any time, from outdated state. Released pods are
    /// always on the same fabric.
    #[test]
    fn no_two_controllers_split_a_group(events in prop::collection::vec(event(), 1..60)) {
        let mut store: Store = (0..3)
            .map(|index| (index, Stored { fabric: None, released: false, version: 1 }))
            .collect();
        let mut version = 1;
        let mut controllers = vec![Controller::default(); 3];
        for event in events {
            version += 1;
            apply(event, &mut store, &mut controllers, version);
            let released: BTreeSet<_> =
                store.values().filter(|it| it.released).map(|it| it.fabric).collect();
            prop_assert!(released.len() <= 1, "{store:?}");
        }
    }
}

fn apply(event: Event, store: &mut Store, controllers: &mut [Controller], version: u64) {
    let all: Vec<String> = (0..4).map(|index| index.to_string()).collect();
    match event {
        Event::Mark { pod, fabric } => {
            // The annotation of a released pod does not matter: its affinity stays.
            if let Some(stored) = store.get_mut(&pod).filter(|stored| !stored.released) {
                *stored = Stored { fabric: Some(fabric), released: false, version };
            }
        }
        Event::List { controller, fabric } => {
            let pods = listed(store);
            let wanted = all.iter().map(String::as_str).collect();
            controllers[controller].removals =
                gate_removals(&key(), &pods, &fabric.to_string(), &wanted, |_| None)
                    .unwrap_or_default();
        }
        Event::GateRemoval { controller, which } => {
            let Some(removal) = controllers[controller].removals.get(which).cloned() else {
                return;
            };
            let Some(stored) = store.get_mut(&removal.pod.parse().unwrap()) else { return };
            // As the API server does: refused with an old version.
            let decided_from = &removal.patch["metadata"]["resourceVersion"];
            if decided_from.as_str() == Some(&*stored.version.to_string()) {
                let terms = &removal.patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                    ["nodeSelectorTerms"];
                let fabric = terms[0]["matchExpressions"][0]["values"][0].as_str().unwrap();
                *stored = Stored { fabric: fabric.parse().ok(), released: true, version };
            }
        }
        Event::Touch { pod } => {
            store.entry(pod).and_modify(|stored| stored.version = version);
        }
        Event::Create { pod } => {
            store.entry(pod).or_insert(Stored { fabric: None, released: false, version });
        }
        Event::Delete { pod } => _ = store.remove(&pod),
    }
}
