//! Against all subsets of pods on small random clusters.

use super::world::{Devices, GPU, NIC, NOW, World, key, started};
use cluster_model::names::job_label;
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{Ask, Nodes, Room};
use cluster_model::view::{ClusterView, Index};
use dra_allocator::DeviceId;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use preemptor::Rules;
use proptest::prelude::*;
use scheduler_ext::score::{Costs, Free, FreeCells, Mix};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A pod that runs.
#[derive(Clone, Debug)]
struct Running {
    name: String,
    node: usize,
    priority: i32,
    devices: Devices,
    cpu: i64,
    seconds: i64,
    /// The Job whose pods leave together.
    job: Option<u8>,
    /// The budget that counts it.
    app: Option<u8>,
}

#[derive(Clone, Debug)]
struct Case {
    /// Cells by node.
    nodes: Vec<usize>,
    pods: Vec<Running>,
    /// The disruptions that each budget allows.
    budgets: Vec<i32>,
    may_violate_budgets: bool,
    priority: i32,
    devices: Devices,
    cpu: i64,
}

const NODES: [&str; 3] = ["a", "b", "c"];

fn devices() -> impl Strategy<Value = Devices> {
    (0..3_usize, 0..3_usize, any::<bool>()).prop_map(|(gpus, nics, near)| Devices {
        gpus,
        nics,
        near: near && gpus + nics > 0,
    })
}

fn running() -> impl Strategy<Value = Running> {
    let marks =
        (proptest::option::weighted(0.3, 0..2_u8), proptest::option::weighted(0.4, 0..2_u8));
    let cpu = prop_oneof![4 => Just(1_i64), 1 => Just(8)];
    (0..3_usize, -1..3_i32, devices(), cpu, 0..4_i64, marks).prop_map(
        |(node, priority, devices, cpu, hours, (job, app))| {
            let (name, seconds) = (String::new(), hours * 3_600);
            Running { name, node, priority, devices, cpu, seconds, job, app }
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let nodes = proptest::collection::vec(1..3_usize, 1..4);
    let pods = proptest::collection::vec(running(), 1..9);
    let wanted =
        devices().prop_map(|it| Devices { gpus: it.gpus.max(usize::from(it.nics == 0)), ..it });
    let asked = (0..4_i32, wanted, prop_oneof![3 => Just(1_i64), 1 => Just(10)]);
    (nodes, pods, proptest::collection::vec(0..3_i32, 2), proptest::bool::weighted(0.2), asked)
        .prop_map(|(nodes, mut pods, budgets, may_violate_budgets, (priority, devices, cpu))| {
            for (number, pod) in pods.iter_mut().enumerate() {
                pod.name = format!("p{number}");
                pod.node %= nodes.len();
            }
            Case { nodes, pods, budgets, may_violate_budgets, priority, devices, cpu }
        })
}

fn cpu(cpu: i64) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}])
}

/// The cluster, and the pods of the case that run.
fn build(case: &Case) -> (World, Vec<&Running>) {
    let mut world = World::new();
    for (name, cells) in NODES.iter().zip(&case.nodes) {
        world.node(name, *cells, &json!({}));
    }
    let mut run = Vec::new();
    for pod in &case.pods {
        let mut more = started(pod.seconds);
        more["spec"]["containers"] = cpu(pod.cpu);
        let app = pod.app.map(|app| format!("app{app}"));
        more["metadata"]["labels"] = json!({"app": app.unwrap_or_default()});
        if let Some(job) = pod.job {
            more["metadata"]["labels"][job_label::JOB_SET] = format!("job{job}").into();
        }
        if world.run(&pod.name, (pod.priority, NODES[pod.node]), pod.devices, &more) {
            run.push(pod);
        }
    }
    for (number, allowed) in case.budgets.iter().enumerate() {
        world.budget(&format!("app{number}"), *allowed);
    }
    world.rules = Rules { may_violate_budgets: case.may_violate_budgets, ..Rules::default() };
    let spec = json!({"spec": {"containers": cpu(case.cpu)}});
    world.wait("high", case.priority, case.devices, &spec);
    (world, run)
}

/// The nodes on which the pod fits when pods are gone, with their claims or without, and what it takes
/// from others there.
fn fits_without(
    (case, world): (&Case, &World),
    ask: &Ask,
    gone: &[&Running],
    with_claims: bool,
) -> Vec<(String, Taken)> {
    let (mut view, mut nodes): (ClusterView, Nodes) = (world.view.clone(), world.nodes.clone());
    for pod in gone {
        nodes.delete_pod(&key(&pod.name));
        Index::<Pod>::delete(&mut view, &key(&pod.name));
        if with_claims {
            Index::<ResourceClaim>::delete(&mut view, &key(&pod.name));
        }
    }
    let work = budget(&view);
    let room = Room::new(&view, &nodes, &work);
    let cells = NODES.iter().zip(&case.nodes);
    let attempt = room.attempt(ask, cells.clone().map(|(node, _)| *node)).unwrap();
    let fits = attempt.each().filter_map(|(node, result)| match result {
        Prediction::Fits(fit) => Some((node, fit.allocations)),
        Prediction::No(_) => None,
    });
    fits.map(|(node, allocations)| {
        let results = allocations.iter().flat_map(|allocation| &allocation.results);
        let devices: Vec<DeviceId> = results.map(|result| result.device.clone()).collect();
        let (_, cells) = cells.clone().find(|(known, _)| **known == node).unwrap();
        (node.to_owned(), taken(&view, (node, *cells), &devices))
    })
    .collect()
}

thread_local! {
    /// Cells of the cases are in few states, each of which takes long to compute.
    static COSTS: RefCell<Costs> = RefCell::default();
}

/// What a pod takes from others: cells and nodes that were all free, and room by the extender's score.
type Taken = (usize, u64);

fn taken(view: &ClusterView, (node, cells): (&str, usize), devices: &[DeviceId]) -> Taken {
    let all = |driver: &str, prefix: &str, cell: usize| {
        let id = |number: usize| DeviceId {
            driver: driver.into(),
            pool: node.into(),
            device: format!("{prefix}{number}").into(),
        };
        [id(2 * cell), id(2 * cell + 1)]
    };
    let count = |cell: usize, is_free: &dyn Fn(&DeviceId) -> bool| {
        let [gpus, nics] = [(GPU, "gpu"), (NIC, "nic")].map(|(driver, prefix)| {
            u32::try_from(all(driver, prefix, cell).iter().filter(|id| is_free(id)).count())
                .unwrap()
        });
        Free::new(gpus, nics)
    };
    let room = |is_free: &dyn Fn(&DeviceId) -> bool| {
        let of_cells: Vec<Free> = (0..cells).map(|cell| count(cell, is_free)).collect();
        let gpus = of_cells.iter().map(|cell| cell.gpus).sum();
        let nics = of_cells.iter().map(|cell| cell.nics).sum();
        (of_cells.clone(), FreeCells::new(vec![of_cells, vec![Free::new(gpus, nics)]]))
    };
    let in_use = view.inventory().state();
    let is_free = |id: &DeviceId| !in_use.is_taken(id);
    let (before, room_before) = room(&is_free);
    let (after, room_after) = room(&|id: &DeviceId| is_free(id) && !devices.contains(id));
    let whole = Free::new(2, 2);
    let broken =
        before.iter().zip(&after).filter(|(one, other)| **one == whole && **other != whole);
    let is_broken = before.iter().all(|cell| *cell == whole) && after != before;
    let (_, empty) = room(&|_: &DeviceId| true);
    let rooms = [&room_before, &room_after, &empty];
    let loss = COSTS.with_borrow_mut(|costs| costs.of(rooms, &Mix::default()).loss);
    (broken.count() + usize::from(is_broken), loss)
}

/// What is lost if pods leave, in the order of comparison: what their place costs comes after it.
type Harm = (usize, i32, i64, usize, Reverse<i64>, i64);

fn harm(case: &Case, gone: &[&Running]) -> Harm {
    let mut violations = 0;
    for (number, allowed) in case.budgets.iter().enumerate() {
        let of_budget = gone.iter().filter(|pod| pod.app.map(usize::from) == Some(number));
        violations += of_budget.count().saturating_sub(usize::try_from(*allowed).unwrap());
    }
    let highest = gone.iter().map(|pod| pod.priority).max().unwrap();
    let first = gone.iter().filter(|pod| pod.priority == highest);
    let sum = gone.iter().map(|pod| i64::from(pod.priority) + (1 << 31)).sum();
    let hours = gone.iter().map(|pod| i64::try_from(pod.devices.gpus).unwrap() * pod.seconds);
    let start = first.map(|pod| NOW - pod.seconds).min().unwrap();
    (violations, highest, sum, gone.len(), Reverse(start), hours.sum())
}

/// The least harm, and all nodes with the pods that leave.
type Least = ((Harm, Taken), BTreeSet<(String, Vec<String>)>);

/// The least harm with which the pod gets a node, and all nodes and sets of pods with it.
fn brute_force(case: &Case, (world, ask): (&World, &Ask), run: &[&Running]) -> Option<Least> {
    let mut units: BTreeMap<String, Vec<&Running>> = BTreeMap::new();
    for pod in run {
        let unit = pod.job.map_or_else(|| pod.name.clone(), |job| format!("job{job}"));
        units.entry(unit).or_default().push(pod);
    }
    units.retain(|_, pods| pods.iter().all(|pod| pod.priority < case.priority));
    let units: Vec<_> = units.into_values().collect();
    let mut best: Option<Least> = None;
    for set in 1..1_u32 << units.len() {
        let chosen = units.iter().enumerate().filter(|(number, _)| set & (1 << number) != 0);
        let gone: Vec<&Running> = chosen.flat_map(|(_, pods)| pods.iter().copied()).collect();
        let harm = harm(case, &gone);
        let is_worse = best.as_ref().is_some_and(|((least, _), _)| *least < harm);
        if is_worse || (harm.0 > 0 && !case.may_violate_budgets) {
            continue;
        }
        let mut names: Vec<String> = gone.iter().map(|pod| pod.name.clone()).collect();
        names.sort();
        for (node, taken) in fits_without((case, world), ask, &gone, true) {
            let harm = (harm, taken);
            match &mut best {
                Some((least, _)) if *least < harm => {}
                Some((least, all)) if *least == harm => {
                    all.insert((node, names.clone()));
                }
                _ => best = Some((harm, BTreeSet::from([(node, names.clone())]))),
            }
        }
    }
    best
}

/// Each case tries all subsets: a hundredth of the cases of other laws.
fn share() -> ProptestConfig {
    let cases = ProptestConfig::default().cases;
    ProptestConfig::with_cases(if cases > 10_240 { cases / 100 } else { cases.min(256) })
}

proptest! {
    #![proptest_config(share())]

    /// The victims are those that all subsets of pods have as the least harmful, and nobody leaves where
    /// no subset helps, or where kube-scheduler needs no help.
    #[test]
    fn victims_are_the_least_harmful_of_all_subsets(case in cases()) {
        let (world, run) = build(&case);
        let decided = world.decide();
        let ask = world.pods.waiting_pod(&key("high")).unwrap().ask.clone();
        let lower: Vec<&Running> =
            run.iter().copied().filter(|pod| pod.priority < case.priority).collect();
        let preemption = decided.preemption;
        if !fits_without((&case, &world), &ask, &lower, false).is_empty() {
            prop_assert!(preemption.is_none() && decided.refusals.is_empty());
            return Ok(());
        }
        let Some((least, all)) = brute_force(&case, (&world, &ask), &run) else {
            prop_assert!(preemption.is_none(), "{preemption:?}");
            prop_assert_eq!(decided.refusals.len(), 1);
            return Ok(());
        };
        let Some(preemption) = preemption else {
            return Err(TestCaseError::fail(format!("nobody leaves: {:?}, {all:?}", decided.refusals)));
        };
        let victims = preemption.victims.iter().flat_map(|victim| &victim.pods);
        let mut names: Vec<String> = victims.map(|pod| pod.pod.key.name.clone()).collect();
        names.sort();
        let gone: Vec<&Running> =
            run.iter().copied().filter(|pod| names.contains(&pod.name)).collect();
        prop_assert_eq!(harm(&case, &gone), least.0);
        let node = preemption.placements[0].node.clone();
        prop_assert!(all.contains(&(node.clone(), names.clone())), "{} {:?}, {:?}: {:?}", node, names, least, all);
        let devices: usize =
            preemption.placements[0].claims.iter().map(|it| it.allocation.results.len()).sum();
        prop_assert_eq!(devices, case.devices.gpus + case.devices.nics);
        prop_assert_eq!(preemption.kept.len(), devices);
    }
}
