//! What keeps a pod off a node, and how many fit: as kube-scheduler 1.37 has it.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

#[path = "room/eviction.rs"]
mod eviction;
#[path = "room/preempt.rs"]
mod preempt;
#[path = "room/scores.rs"]
mod scores;
#[path = "room/spread.rs"]
mod spread;
#[path = "room/volumes.rs"]
mod volumes;

use cluster_model::names::label;
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{Ask, Nodes, PodKey, Room, WhyNot};
use cluster_model::view::{ClusterView, Index as _, ObjectKey};
use dra_allocator::ClaimName;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const NODE: &str = "a";

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A cluster of nodes with devices, and the pods on them.
#[derive(Default)]
struct World {
    view: ClusterView,
    nodes: Nodes,
}

impl World {
    /// Nodes with these numbers of devices, and templates `d1`, `d2` that request as many.
    fn new(devices: &[(&str, usize)]) -> Self {
        let mut world = Self::default();
        let class: DeviceClass = from(json!({"metadata": {"name": "nic"}, "spec": {}}));
        world.view.apply(class).unwrap();
        for count in [1, 2] {
            world
                .template(&format!("d{count}"), &json!({"deviceClassName": "nic", "count": count}));
        }
        for (name, count) in devices {
            world.node(name, *count, &json!({}));
        }
        world
    }

    fn template(&mut self, name: &str, exactly: &Value) {
        let template: ResourceClaimTemplate = from(json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
        }));
        self.view.apply(template).unwrap();
    }

    /// Adds or replaces a node. `more` is merged into the object.
    fn node(&mut self, name: &str, devices: usize, more: &Value) {
        let mut node = json!({
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "zone": "z", label::NODE_FABRIC: "f",
            }},
            "spec": {},
            "status": {"allocatable": {"cpu": "4", "pods": "3"}},
        });
        json_patch::merge(&mut node, more);
        let node: Node = from(node);
        self.nodes.apply(&node);
        self.view.apply(node).unwrap();
        let devices: Vec<_> = (0..devices)
            .map(|number| {
                json!({"name": format!("n{number}"), "attributes": {
                    format!("has{number}"): {"bool": true},
                }})
            })
            .collect();
        let slice: ResourceSlice = from(json!({
            "metadata": {"name": name},
            "spec": {
                "driver": "d", "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            },
        }));
        self.view.apply(slice).unwrap();
    }

    fn run(&mut self, name: &str, node: &str, spec: &Value) {
        let mut pod = pod(spec);
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.labels = Some([("app".to_owned(), name.to_owned())].into());
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        self.nodes.apply_pod(&pod);
    }

    /// A claim of a pod with devices of a node.
    fn claim(&mut self, name: &str, pod: &str, (node, devices): (&str, &[usize])) {
        let results: Vec<_> = devices
            .iter()
            .map(|number| {
                json!({"request": "r", "driver": "d", "pool": node, "device": format!("n{number}")})
            })
            .collect();
        let claim: ResourceClaim = from(json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "nic", "count": devices.len()}},
            ]}},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
            },
        }));
        self.view.apply(claim).unwrap();
    }

    fn why_not(&self, spec: &Value) -> Option<WhyNot> {
        let budget = budget(&self.view);
        let room = Room::new(&self.view, &self.nodes, &budget);
        room.why_not(NODE, &Ask::new(&pod(spec))).unwrap()
    }
}

/// A pod of namespace `n` with these fields of its spec.
fn pod(more: &Value) -> Pod {
    let mut spec = json!({"containers": [{"name": "c"}]});
    json_patch::merge(&mut spec, more);
    from(json!({
        "metadata": {"name": "new", "namespace": "n", "labels": {"app": "new"}}, "spec": spec,
    }))
}

fn cpu(amount: &str) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": amount}}}])
}

fn by_template(name: &str) -> Value {
    json!({"resourceClaims": [{"name": "d", "resourceClaimTemplateName": name}]})
}

fn term(app: &str, key: &str) -> Value {
    json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}])
}

fn affinity(kind: &str, terms: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn each_reason_is_named() {
    let tolerates = |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists"}]});
    let not_ready =
        |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let taint = json!({"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}});
    let cordon = json!({"spec": {"unschedulable": true}});
    let port = json!([{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
    let short =
        |also_when_empty| Some(WhyNot::TooLittle { resource: "cpu".into(), also_when_empty });
    let none = json!({});
    let other = |key: &str| -> Box<str> { key.into() };
    // Besides the node, a pod `other` runs there: it has 1 CPU and port 80.
    for (node, spec, expected) in [
        (&none, json!({}), None),
        (&none, json!({"nodeSelector": {"zone": "y"}}), Some(WhyNot::NotSelected)),
        (&cordon, json!({}), Some(WhyNot::Cordoned)),
        (&cordon, tolerates("node.kubernetes.io/unschedulable"), None),
        (&taint, json!({}), Some(WhyNot::Tainted { key: other("t") })),
        (&taint, tolerates("t"), None),
        (&not_ready("False"), json!({}), Some(WhyNot::NotReady { since: other("") })),
        // The control plane's taint is tolerated, so the scheduler places the pod there.
        (&not_ready("False"), tolerates("node.kubernetes.io/not-ready"), None),
        (&not_ready("Unknown"), tolerates("node.kubernetes.io/unreachable"), None),
        (&none, json!({"containers": cpu("3")}), None),
        (&none, json!({"containers": cpu("3500m")}), short(false)),
        (&none, json!({"containers": cpu("5")}), short(true)),
        (&json!({"status": {"allocatable": {"pods": "1"}}}), json!({}), Some(WhyNot::Full)),
        (&json!({"status": {"allocatable": null}}), json!({}), Some(WhyNot::TakesNoPods)),
        (&none, json!({"containers": port}), Some(WhyNot::PortInUse { number: 80 })),
        (
            &none,
            affinity("podAntiAffinity", &term("other", "zone")),
            Some(WhyNot::Apart { domains: other("zone") }),
        ),
        (&none, affinity("podAntiAffinity", &term("else", "zone")), None),
        (&none, affinity("podAffinity", &term("other", "zone")), None),
        // The first pod of those that must be near each other may go anywhere.
        (&none, affinity("podAffinity", &term("new", "zone")), None),
        (
            &none,
            affinity("podAffinity", &term("else", "zone")),
            Some(WhyNot::NotNear { domains: other("zone") }),
        ),
        (
            &none,
            affinity("podAffinity", &json!([{"topologyKey": "zone"}])),
            Some(WhyNot::NotNear { domains: other("zone") }),
        ),
        (&none, by_template("d2"), None),
    ] {
        let mut world = World::default();
        let class: DeviceClass = from(json!({"metadata": {"name": "nic"}, "spec": {}}));
        world.view.apply(class).unwrap();
        world.template("d2", &json!({"deviceClassName": "nic", "count": 2}));
        world.node(NODE, 2, node);
        let mut others = json!({"containers": port});
        others["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        world.run("other", NODE, &others);
        assert_eq!(world.why_not(&spec), expected, "{node} {spec}");
    }
}

#[test]
fn devices_in_use_and_claims_elsewhere_are_reasons() {
    let mut world = World::new(&[(NODE, 2), ("b", 2)]);
    world.claim("held", "other", (NODE, &[0]));
    assert_eq!(world.why_not(&by_template("d1")), None);
    assert!(matches!(world.why_not(&by_template("d2")), Some(WhyNot::NoFit(_))));
    world.claim("there", "new", ("b", &[0]));
    let named = json!({"resourceClaims": [{"name": "d", "resourceClaimName": "there"}]});
    let why = world.why_not(&named).unwrap();
    assert_eq!(why.to_string(), "its claim there has devices of node b already");
}

/// As in the scheduler: an error on one node is no reason to take another.
#[test]
fn a_selector_that_fails_on_one_node_stops_the_pod_on_all() {
    let mut world = World::new(&[(NODE, 1), ("b", 2)]);
    let expression = "device.attributes['d'].has1 || !device.attributes['d'].has1";
    let selectors = json!([{"cel": {"expression": expression}}]);
    world.template("fails", &json!({"deviceClassName": "nic", "selectors": selectors}));
    // Node `c` has what the selector reads; `a` and `b` do not, on their first device.
    world.node("c", 2, &json!({}));
    let slice: ResourceSlice = from(json!({
        "metadata": {"name": "c"},
        "spec": {
            "driver": "d", "nodeName": "c",
            "devices": [{"name": "n", "attributes": {"has1": {"bool": true}}}],
            "pool": {"name": "c", "generation": 1, "resourceSliceCount": 1},
        },
    }));
    world.view.apply(slice).unwrap();
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let ask = Ask::new(&pod(&by_template("fails")));
    let attempt = room.attempt(&ask, [NODE, "b", "c"]).unwrap();
    assert_eq!(attempt.fits(), Vec::<&str>::new());
    let results: Vec<_> = attempt.each().collect();
    for (node, result) in results {
        let Prediction::No(why) = result else { panic!("fits on {node}") };
        match node {
            "c" => assert!(matches!(why, WhyNot::FailsElsewhere { .. }), "{why:?}"),
            _ => assert!(matches!(why, WhyNot::Failed(_)), "{why:?}"),
        }
    }
    assert_eq!(room.count(&ask, [NODE, "b", "c"]), 0);
    // The scheduler asks only the nodes that its other filters leave.
    assert_eq!(room.attempt(&ask, ["c"]).unwrap().fits(), ["c"]);
    assert_eq!(room.count(&ask, ["c"]), 1);
}

#[test]
fn a_claim_that_leaves_takes_its_pod_along() {
    let mut world = World::new(&[(NODE, 2)]);
    world.run("other", NODE, &json!({"containers": cpu("3")}));
    world.claim("held", "other", (NODE, &[0, 1]));
    let mut spec = by_template("d2");
    spec["containers"] = cpu("2");
    let ask = Ask::new(&pod(&spec));
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    assert_eq!(room.count(&ask, [NODE]), 0);
    let held = ClaimName::new("n", "held");
    assert_eq!(room.without(&[&held]).count(&ask, [NODE]), 1);
    assert_eq!(room.emptied().count(&ask, [NODE]), 1);
}

/// Only pods that all terms of affinity select count, and `matchLabelKeys` are the pod's own values.
#[test]
fn all_terms_of_affinity_select_the_same_pods() {
    let term = |key: &str, app: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    let mut of_own = term("zone", "x");
    of_own["labelSelector"] = json!({});
    of_own["matchLabelKeys"] = json!(["app"]);
    let mut of_others = of_own.clone();
    of_others["matchLabelKeys"] = Value::Null;
    of_others["mismatchLabelKeys"] = json!(["app"]);
    for (terms, expected) in [
        (json!([term("zone", "x")]), true),
        (json!([term("zone", "x"), term("kubernetes.io/hostname", "x")]), true),
        (json!([term("zone", "x"), term("zone", "y")]), false),
        // No other pod has the label of the pod itself, which may be the first.
        (json!([of_own]), true),
        (json!([of_own, term("zone", "x")]), false),
        (json!([of_others]), true),
    ] {
        let mut world = World::new(&[(NODE, 0)]);
        world.run("x", NODE, &json!({"containers": []}));
        world.run("y", NODE, &json!({"containers": []}));
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        let spec = json!({"containers": [], "affinity": {"podAffinity": affinity}});
        assert_eq!(world.why_not(&spec).is_none(), expected, "{terms}");
    }
}

#[test]
fn a_claim_that_ends_or_is_full_serves_no_other_pod() {
    let ending = json!({"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}});
    let user = |number: usize| json!({"resource": "pods", "name": "p", "uid": number.to_string()});
    let users = |number: usize| json!({"status": {"reservedFor": (0..number).map(user).collect::<Vec<_>>()}});
    for (fields, expected) in [
        (json!({}), None),
        (ending, Some("claim `n/c` is being deleted")),
        (users(255), None),
        (users(256), Some("claim `n/c` is used by 256 pods, and no more can use it")),
    ] {
        let mut world = World::new(&[(NODE, 1)]);
        let exactly = json!({"deviceClassName": "nic"});
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        });
        json_patch::merge(&mut claim, &fields);
        world.view.apply(from::<ResourceClaim>(claim)).unwrap();
        let spec = json!({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]});
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let tried = room.attempt(&Ask::new(&pod(&spec)), [NODE]);
        assert_eq!(tried.err().as_deref(), expected);
    }
}

/// As kube-scheduler's filters do, so that both count as many nodes with a reason.
#[test]
fn the_first_reason_is_that_of_the_first_filter() {
    let mut world = World::new(&[(NODE, 1), ("b", 1)]);
    world.claim("shared", "other", ("b", &[0]));
    let with_claim = json!({
        "resourceClaims": [{"name": "r", "resourceClaimName": "shared"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}],
    });
    assert!(matches!(world.why_not(&with_claim), Some(WhyNot::TooLittle { .. })));
    let taints = json!([{"key": "t", "effect": "NoSchedule"}]);
    world.node(NODE, 1, &json!({"spec": {"taints": taints, "unschedulable": true}}));
    assert_eq!(world.why_not(&json!({})), Some(WhyNot::Cordoned));
}

/// Pods that leave and stay after all change nothing.
#[test]
fn a_pod_that_stays_after_all_keeps_its_devices() {
    let mut world = World::new(&[(NODE, 2)]);
    let mut held = pod(&json!({
        "nodeName": NODE, "containers": cpu("1"),
        "resourceClaims": [{"name": "d", "resourceClaimName": "held"}],
    }));
    held.metadata.name = Some("other".to_owned());
    world.nodes.apply_pod(&held);
    world.claim("held", "other", (NODE, &[0, 1]));
    let ask = Ask::new(&pod(&by_template("d2")));
    let budget = budget(&world.view);
    let mut room = Room::new(&world.view, &world.nodes, &budget);
    let other = PodKey { namespace: "n".into(), name: "other".into() };
    for leaves in [true, false, true, true, false, false] {
        if leaves {
            room.let_leave(NODE, &other);
        } else {
            room.let_stay(NODE, &other);
        }
        assert_eq!(room.count(&ask, [NODE]), usize::from(leaves));
    }
}

/// Terms of a pod that runs, by which it keeps others away.
#[test]
fn pods_that_run_keep_others_clear_of_their_domain() {
    for (terms, is_kept) in [
        (term("new", "kubernetes.io/hostname"), true),
        (term("new", "zone"), true),
        (term("else", "zone"), false),
        (json!([{"topologyKey": "zone", "labelSelector": {}}]), true),
        (json!([{"topologyKey": "zone", "labelSelector": {}, "namespaces": ["m"]}]), false),
        (json!([{"topologyKey": "no-label", "labelSelector": {}}]), false),
    ] {
        let mut world = World::new(&[(NODE, 0)]);
        world.run("other", NODE, &affinity("podAntiAffinity", &terms));
        let domains = terms[0]["topologyKey"].as_str().unwrap().into();
        let expected = is_kept.then_some(WhyNot::KeptClear { domains });
        assert_eq!(world.why_not(&json!({})), expected, "{terms}");
    }
}

/// A cordoned node is not looked at if the pod names another.
#[test]
fn nodes_that_a_pod_does_not_name_are_not_looked_at() {
    let mut world = World::new(&[(NODE, 0)]);
    world.node(NODE, 0, &json!({"spec": {"unschedulable": true}}));
    let named = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms,
        }}}})
    };
    let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
    let label = json!({"matchExpressions": [{"key": "none", "operator": "Exists"}]});
    for (terms, expected) in [
        (json!([field("other")]), WhyNot::NotSelected),
        (json!([field("other"), field(NODE)]), WhyNot::Cordoned),
        (json!([field("other"), label]), WhyNot::Cordoned),
    ] {
        assert_eq!(world.why_not(&named(terms.clone())), Some(expected), "{terms}");
    }
}

/// Others are evicted for a pod: until they have left, it holds room against pods of no higher priority.
#[test]
fn a_pod_for_which_others_leave_holds_room() {
    let mut world = World::new(&[(NODE, 0)]);
    let with = |cpu_count: &str, priority: i32| json!({"priority": priority, "containers": cpu(cpu_count)});
    let mut nominated = pod(&with("3", 5));
    nominated.metadata.name = Some("nominated".to_owned());
    nominated.status.get_or_insert_default().nominated_node_name = Some(NODE.to_owned());
    world.nodes.apply_pod(&nominated);
    assert!(matches!(world.why_not(&with("2", 5)), Some(WhyNot::TooLittle { .. })));
    assert!(matches!(world.why_not(&with("2", 4)), Some(WhyNot::TooLittle { .. })));
    assert_eq!(world.why_not(&with("2", 6)), None);
    assert_eq!(world.why_not(&with("1", 4)), None);
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    assert_eq!(room.count(&Ask::new(&pod(&with("1", 5))), [NODE]), 1);
    let own = ObjectKey { namespace: "n".into(), name: "nominated".into() };
    assert_eq!(room.besides(&own).why_not(NODE, &Ask::new(&nominated)).unwrap(), None);
    nominated.spec.as_mut().unwrap().node_name = Some(NODE.to_owned());
    world.nodes.apply_pod(&nominated);
    let higher = with("2", 6);
    assert!(matches!(world.why_not(&higher), Some(WhyNot::TooLittle { .. })), "it has its node");
}

/// The scheduler holds the room of a pod that waits for its devices to become ready.
#[test]
fn a_pod_that_is_being_bound_holds_its_room() {
    let mut world = World::new(&[(NODE, 2)]);
    let mut waiting = pod(&json!({
        "containers": cpu("3"),
        "resourceClaims": [{"name": "d", "resourceClaimName": "held"}],
    }));
    waiting.metadata.name = Some("waiting".to_owned());
    world.nodes.apply_pod(&waiting);
    let spec = json!({"containers": cpu("2")});
    assert_eq!(world.why_not(&spec), None, "it has no devices yet");
    world.claim("held", "waiting", (NODE, &[0]));
    assert!(matches!(world.why_not(&spec), Some(WhyNot::TooLittle { .. })));
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let own = ObjectKey { namespace: "n".into(), name: "waiting".into() };
    assert_eq!(room.besides(&own).why_not(NODE, &Ask::new(&waiting)).unwrap(), None);
    waiting.spec.as_mut().unwrap().node_name = Some(NODE.to_owned());
    world.nodes.apply_pod(&waiting);
    assert!(matches!(world.why_not(&spec), Some(WhyNot::TooLittle { .. })), "it counts once");
    world.nodes.delete_pod(&own);
    assert_eq!(world.why_not(&spec), None);
}

#[test]
fn pods_with_a_port_fit_once_on_a_node() {
    let world = World::new(&[(NODE, 0), ("b", 0)]);
    let port = json!([{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
    let ask = Arc::new(Ask::new(&pod(&json!({"containers": port}))));
    let budget = budget(&world.view);
    let mut room = Room::new(&world.view, &world.nodes, &budget);
    assert_eq!(room.count(&ask, [NODE, "b"]), 2);
    assert_eq!(room.take(&ask, 1, [NODE]), 1);
    assert_eq!(room.count(&ask, [NODE, "b"]), 1);
}

/// What random pods ask for: claims, CPU, ports, affinity.
fn asks() -> impl Strategy<Value = Value> {
    let claims = prop_oneof![Just(json!({})), Just(by_template("d1")), Just(by_template("d2"))];
    let cpu = prop_oneof![Just("0"), Just("1"), Just("3")];
    let port = proptest::option::of(Just(json!([{"containerPort": 80, "hostPort": 80}])));
    let terms = prop_oneof![
        Just(json!({})),
        Just(affinity("podAntiAffinity", &term("new", "kubernetes.io/hostname"))),
        Just(affinity("podAntiAffinity", &term("p0", "zone"))),
        Just(affinity("podAffinity", &term("p0", "kubernetes.io/hostname"))),
        Just(affinity("podAffinity", &term("new", "zone"))),
        Just(json!({"topologySpreadConstraints": [{
            "topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "new"}},
        }]})),
    ];
    (claims, cpu, port, terms).prop_map(|(claims, cpu, port, terms)| {
        let mut spec = claims;
        json_patch::merge(&mut spec, &terms);
        spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        if let Some(port) = port {
            spec["containers"][0]["ports"] = port;
        }
        spec
    })
}

proptest! {
    /// One answer: a node has places for a kind of pod if and only if one such pod fits there, and
    /// all that are counted can be added one by one.
    #[test]
    fn counts_agree_with_attempts(
        devices in proptest::collection::vec(0..4_usize, 1..4),
        running in proptest::collection::vec((0..4_usize, asks()), 0..4),
        spec in asks(),
    ) {
        let names = ["a", "b", "c"];
        let named: Vec<_> = names.into_iter().zip(devices).collect();
        let mut world = World::new(&named);
        for (number, (node, spec)) in running.iter().enumerate() {
            let spec = json!({"containers": spec["containers"], "affinity": spec["affinity"]});
            world.run(&format!("p{number}"), named[node % named.len()].0, &spec);
        }
        let nodes: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let ask = Arc::new(Ask::of_kind(&pod(&spec)));
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let fits: BTreeSet<&str> =
            room.attempt(&ask, nodes.iter().copied()).unwrap().fits().into_iter().collect();
        let places = room.places(&ask, nodes.iter().copied(), usize::MAX);
        let open: BTreeSet<&str> = places.iter().map(|places| places.node).collect();
        prop_assert!(open.is_subset(&fits), "{open:?} {fits:?}");
        prop_assert_eq!(open.is_empty(), fits.is_empty());
        for node in &nodes {
            let why = room.why_not(node, &ask).unwrap();
            prop_assert_eq!(why.is_none(), fits.contains(node), "{}: {:?}", node, why);
        }
        let count: usize = places.iter().map(|places| places.count).sum();
        let mut room = room.clone();
        prop_assert_eq!(room.take(&ask, usize::MAX, nodes.iter().copied()), count);
    }
}
