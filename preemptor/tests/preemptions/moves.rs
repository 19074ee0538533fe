//! Plans of moves.

use super::world::{Devices, NAMESPACE, World, any, from, key, near};
use cluster_model::names::{annotation, label};
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{Ask, Nodes, Room};
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use preemptor::defrag::{Movable, Plan, Wanted, fewest_moves};
use preemptor::{Budgets, Cluster};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A pod of a controller.
fn owned(is_movable: bool) -> Value {
    json!({
        "metadata": {
            "annotations": {annotation::MOVABLE: is_movable.to_string()},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": true},
            ],
        },
    })
}

fn run(world: &mut World, pod: &str, node: &str, devices: Devices, is_movable: bool) -> bool {
    world.run(pod, (0, node), devices, &owned(is_movable))
}

/// What a pod with these devices asks for.
fn ask(world: &mut World, devices: Devices) -> Arc<Ask> {
    world.template(devices);
    Arc::new(Ask::of_kind(&from(json!({
        "metadata": {"name": "new", "namespace": NAMESPACE},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "devices", "resourceClaimTemplateName": devices.template()},
        ]},
    }))))
}

fn plan(world: &World, wanted: Wanted<'_>, movable: &Movable, most: usize) -> Option<Plan> {
    let groups = world.known_groups();
    let cluster = Cluster {
        view: &world.view,
        nodes: &world.nodes,
        pods: &world.pods,
        groups: &groups,
        budgets: &Budgets::default(),
        begun: &[],
    };
    fewest_moves(cluster, wanted, movable, most)
}

fn told(plan: Option<Plan>) -> String {
    let Some(Plan { moves, nodes }) = plan else { return "none".to_owned() };
    let moves = moves.iter().map(|it| format!("{} {}>{}", it.pod.key.name, it.from, it.to));
    format!("{} | {}", moves.collect::<Vec<_>>().join(", "), nodes.join(", "))
}

#[test]
fn a_pod_moves_to_where_there_is_a_place() {
    let mut world = World::new();
    world.node("a", 2, &json!({}));
    world.node("b", 2, &json!({}));
    assert!(run(&mut world, "one", "a", near(2, 2), true));
    assert!(run(&mut world, "two", "b", near(2, 2), false));
    let whole = ask(&mut world, any(4, 4));
    let cell = ask(&mut world, near(2, 2));
    let movable = Movable::default();
    assert_eq!(told(plan(&world, Wanted::Pods(&cell, 2), &movable, 6)), " | a, b");
    assert_eq!(told(plan(&world, Wanted::Pods(&whole, 1), &movable, 6)), "one a>b | a");
    assert_eq!(told(plan(&world, Wanted::Pods(&whole, 1), &movable, 0)), "none");
    assert_eq!(told(plan(&world, Wanted::Pods(&whole, 2), &movable, 6)), "none");
    world.end("one");
    assert!(run(&mut world, "one", "a", near(2, 2), false));
    assert_eq!(told(plan(&world, Wanted::Pods(&whole, 1), &movable, 6)), "none");
    let owners = BTreeSet::from([("StatefulSet".to_owned(), "web".to_owned())]);
    let by_owner = Movable { owners };
    assert_eq!(told(plan(&world, Wanted::Pods(&whole, 1), &by_owner, 6)), "one a>b | a");
}

/// A place is made by moving another pod first.
#[test]
fn a_move_may_need_another_one() {
    let mut world = World::new();
    for node in ["a", "b", "c"] {
        world.node(node, 2, &json!({}));
    }
    // Whole nodes are needed twice: one pod of a cell must go from `b` to `c` so that ...
    assert!(run(&mut world, "pair", "a", any(3, 0), true));
    assert!(run(&mut world, "small", "b", any(2, 0), true));
    assert!(run(&mut world, "fixed", "c", any(2, 0), false));
    let whole = ask(&mut world, any(4, 0));
    assert_eq!(
        told(plan(&world, Wanted::Pods(&whole, 1), &Movable::default(), 6)),
        "small b>c | b"
    );
    assert!(run(&mut world, "pinned", "b", any(1, 0), false));
    assert_eq!(
        told(plan(&world, Wanted::Pods(&whole, 1), &Movable::default(), 6)),
        "small b>c, pair a>b | a"
    );
}

/// Only if the rules allow it, and if nobody of lower priority leaves.
#[test]
fn pods_move_for_one_for_which_nobody_else_leaves() {
    let mut world = World::new();
    for node in ["a", "b"] {
        world.node(node, 1, &json!({}));
    }
    assert!(run(&mut world, "one", "a", near(1, 1), true));
    assert!(run(&mut world, "fixed", "b", near(1, 1), false));
    world.wait("high", 0, near(2, 2), &json!({}));
    assert_eq!(world.told(), "high: NobodyIsLower");
    world.rules.may_move = true;
    assert_eq!(world.told(), "high: NobodyIsLower; high on a for one");
    assert!(world.decide().preemption.unwrap().moves);
    let mut limited = world.clone();
    limited.rules.victims.namespaces = Some(BTreeSet::from(["other".to_owned()]));
    assert_eq!(limited.told(), "high: NobodyIsLower", "the rules for victims hold");
    let mut full = world.clone();
    assert!(run(&mut full, "more", "b", near(1, 1), false));
    assert_eq!(full.told(), "high: NobodyIsLower", "there is no place for the pod that moves");
    assert!(world.run("low", (-1, "b"), near(1, 1), &json!({})));
    world.end("fixed");
    let decided = world.decide().preemption.unwrap();
    assert!(!decided.moves, "a pod of lower priority leaves");
}

#[test]
fn a_group_gets_room_on_one_fabric() {
    let mut world = World::new();
    let fabric = label::NODE_FABRIC;
    for (node, name) in [("f0", "f"), ("f1", "f"), ("g0", "g")] {
        world.node(node, 1, &json!({fabric: name}));
    }
    assert!(run(&mut world, "one", "f1", near(2, 2), true));
    for number in 0..2 {
        world.gated(&format!("train-{number}"), "train", 0, near(2, 2));
    }
    world.sizes.insert("train".to_owned(), 2);
    let groups = world.known_groups();
    let group = groups.iter().find(|group| group.key.label == "train").unwrap();
    let told = told(plan(&world, Wanted::Group(group), &Movable::default(), 6));
    assert_eq!(told, "one f1>g0 | f0, f1");
}

#[derive(Clone, Debug)]
struct Case {
    nodes: usize,
    /// Node, devices, and whether it may move.
    pods: Vec<(usize, Devices, bool)>,
    wanted: Devices,
}

const NODES: [&str; 3] = ["a", "b", "c"];

fn cases() -> impl Strategy<Value = Case> {
    let kinds = || {
        prop_oneof![
            3 => Just(any(1, 0)), 3 => Just(near(1, 1)), 2 => Just(near(2, 2)), 1 => Just(any(3, 1)),
        ]
    };
    let pod = (0..3_usize, kinds(), proptest::bool::weighted(0.8));
    let wanted = prop_oneof![Just(near(2, 2)), Just(any(4, 4)), Just(any(3, 0))];
    (2..4_usize, proptest::collection::vec(pod, 2..6), wanted).prop_map(|(nodes, pods, wanted)| {
        let pods = pods.into_iter().map(|(node, devices, moves)| (node % nodes, devices, moves));
        Case { nodes, pods: pods.collect(), wanted }
    })
}

/// A cluster in the search for the best plan.
#[derive(Clone)]
struct State {
    view: ClusterView,
    nodes: Nodes,
    at: BTreeMap<usize, usize>,
}

fn allocate(state: &State, ask: &Ask, node: &str) -> Option<Vec<Value>> {
    let work = budget(&state.view);
    let room = Room::new(&state.view, &state.nodes, &work);
    let attempt = room.attempt(ask, [node]).unwrap();
    let Some((_, Prediction::Fits(fit))) = attempt.each().next() else { return None };
    let results = fit.allocations.iter().flat_map(|allocation| &allocation.results);
    Some(
        results
            .map(|result| {
                let device = &result.device;
                json!({
                    "request": &*result.request, "driver": &*device.driver,
                    "pool": &*device.pool, "device": &*device.device,
                })
            })
            .collect(),
    )
}

/// The state after a pod is evicted and created on another node; `None` if it does not fit there.
fn moved(state: &State, pod: usize, devices: Devices, to: usize, kinds: &Asks) -> Option<State> {
    let mut next = state.clone();
    let name = format!("p{pod}");
    next.nodes.delete_pod(&key(&name));
    Index::<ResourceClaim>::delete(&mut next.view, &key(&name));
    let results = allocate(&next, &kinds[&devices.template()], NODES[to])?;
    let claim: ResourceClaim = from(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": devices.spec(),
        "status": {"allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}]},
    }));
    next.view.apply(claim).unwrap();
    let pod_object: Pod = from(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": NODES[to], "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}},
        ]},
    }));
    next.nodes.apply_pod(&pod_object);
    next.at.insert(pod, to);
    Some(next)
}

type Asks = BTreeMap<String, Arc<Ask>>;

/// The fewest moves, by breadth-first search over where pods are; at most six.
fn best(
    case: &Case,
    start: &State,
    movable: &BTreeSet<usize>,
    (wanted, kinds): (&Ask, &Asks),
) -> Option<usize> {
    let mut seen = BTreeSet::from([start.at.clone()]);
    let mut open = VecDeque::from([(start.clone(), 0)]);
    while let Some((state, moves)) = open.pop_front() {
        if NODES[..case.nodes].iter().any(|node| allocate(&state, wanted, node).is_some()) {
            return Some(moves);
        }
        if moves == 6 {
            continue;
        }
        for pod in movable {
            for to in (0..case.nodes).filter(|to| state.at.get(pod) != Some(to)) {
                let next = moved(&state, *pod, case.pods[*pod].1, to, kinds);
                let Some(next) = next.filter(|next| seen.insert(next.at.clone())) else { continue };
                open.push_back((next, moves + 1));
            }
        }
    }
    None
}

/// A search over all places of all pods takes long.
fn share() -> ProptestConfig {
    ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(100).max(48))
}

proptest! {
    #![proptest_config(share())]

    /// A plan can be carried out move by move, the wanted pod fits then, and no plan has two moves less.
    #[test]
    fn plans_are_within_one_move_of_the_best(case in cases()) {
        let mut world = World::new();
        for node in &NODES[..case.nodes] {
            world.node(node, 2, &json!({}));
        }
        let (mut at, mut movable) = (BTreeMap::new(), BTreeSet::new());
        let mut kinds = Asks::new();
        for (number, (node, devices, moves)) in case.pods.iter().enumerate() {
            kinds.insert(devices.template(), ask(&mut world, *devices));
            if run(&mut world, &format!("p{number}"), NODES[*node], *devices, *moves) {
                at.insert(number, *node);
                movable.extend(moves.then_some(number));
            }
        }
        let wanted = ask(&mut world, case.wanted);
        let found = plan(&world, Wanted::Pods(&wanted, 1), &Movable::default(), 6);
        let mut state = State { view: world.view.clone(), nodes: world.nodes.clone(), at };
        let best = best(&case, &state, &movable, (&wanted, &kinds));
        let Some(found) = found else {
            prop_assert_eq!(best, None);
            return Ok(());
        };
        prop_assert!(best.is_some_and(|best| found.moves.len() <= best + 1), "{best:?} {found:?}");
        for step in &found.moves {
            let pod: usize = step.pod.key.name[1..].parse().unwrap();
            prop_assert!(movable.contains(&pod));
            let to = NODES.iter().position(|node| *node == step.to).unwrap();
            let next = moved(&state, pod, case.pods[pod].1, to, &kinds);
            prop_assert!(next.is_some(), "{step:?} of {found:?}");
            state = next.unwrap();
        }
        let node = &found.nodes[0];
        prop_assert!(allocate(&state, &wanted, node).is_some(), "{found:?}");
    }
}
