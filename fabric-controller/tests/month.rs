//! A month of gangs and addresses, each with a name that was never there before, on nodes that are replaced:
//! no gang is split, each waits for its pods as long as it may, and nothing grows.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

#[path = "month/addresses.rs"]
mod addresses;
#[path = "month/dice.rs"]
mod dice;
#[path = "placements/world.rs"]
mod world;

use cluster_model::room::Nodes;
use cluster_model::view::{Index, ObjectKey};
use dice::Dice;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::size::Size;
use fabric_controller::{Action, WaitingReason};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use world::World;

/// Seconds of a step.
const STEP: i64 = 30 * 60;
const DAY: usize = 48;
const MONTH: usize = 30 * DAY;
/// How many steps a gang waits for pods that do not come.
const WHOLE_WITHIN: usize = 4;
const FABRICS: usize = 3;
const NODES: usize = 6;

/// A gang, by the steps of what happens to it.
struct Gang {
    pods: usize,
    /// When its last pod comes.
    whole: usize,
    /// When its youngest pod came.
    youngest: usize,
    /// How long it runs once it is placed.
    runs: usize,
    placed: Option<usize>,
}

struct Month {
    world: World,
    dice: Dice,
    gangs: BTreeMap<String, Gang>,
    /// What a controller keeps of pods and nodes.
    members: GroupPods,
    nodes: Nodes,
    known: BTreeSet<ObjectKey>,
    step: usize,
    nodes_made: usize,
}

impl Month {
    fn new() -> Self {
        let mut world = World::new(FABRICS, NODES);
        world.rules.whole_within =
            SignedDuration::from_secs(i64::try_from(WHOLE_WITHIN).unwrap() * STEP);
        let (members, nodes) = (GroupPods::default(), world.nodes.clone());
        let (gangs, known) = (BTreeMap::new(), BTreeSet::new());
        Self { world, dice: Dice(3), gangs, members, nodes, known, step: 0, nodes_made: 0 }
    }

    fn pass(&mut self) {
        self.step += 1;
        self.world.now += STEP;
        self.end_gangs();
        self.replace_node();
        self.add_pods();
        if self.dice.below(2) == 0 {
            self.add_gang();
        }
        self.check();
        self.world.release();
        let stuck = self.world.bind(self.dice.below(NODES));
        assert!(stuck.is_empty(), "step {}: {stuck:?} have no place", self.step);
        self.follow();
    }

    fn add_gang(&mut self) {
        let (name, pods) = (format!("gang-{}", self.step), 2 + self.dice.below(NODES - 1));
        self.world.sizes.insert(name.clone(), Size { pods, at_once: true });
        let late = self.dice.below(4) == 0;
        for index in 0..pods - usize::from(late) {
            self.world.pod(&format!("{name}-{index}"), &name, "d4", &json!({}));
        }
        // Of some, the last pod comes after the gang was placed, or just before.
        let whole = self.step + if late { 1 + self.dice.below(2 * WHOLE_WITHIN) } else { 0 };
        let (youngest, runs) = (self.step, 2 + self.dice.below(10));
        self.gangs.insert(name, Gang { pods, whole, youngest, runs, placed: None });
    }

    /// The last pods of gangs come.
    fn add_pods(&mut self) {
        for (name, gang) in &mut self.gangs {
            if gang.whole == self.step {
                let pod = format!("{name}-{}", gang.pods - 1);
                self.world.pod(&pod, name, "d4", &json!({}));
                gang.youngest = self.step;
            }
        }
    }

    fn end_gangs(&mut self) {
        let step = self.step;
        let over = self.gangs.extract_if(.., |_, gang| {
            gang.placed.is_some_and(|placed| placed + gang.runs <= step && gang.whole <= step)
        });
        for (name, _) in over {
            for pod in self.world.of(&name) {
                self.world.delete(&pod);
            }
            self.world.sizes.remove(&name);
        }
    }

    /// A node without pods is replaced by one with a new name on its fabric.
    fn replace_node(&mut self) {
        let in_use: BTreeSet<String> =
            self.gangs.keys().flat_map(|gang| self.world.nodes_of(gang)).collect();
        let names = self.world.view.inventory().node_names().map(ToString::to_string);
        let free: Vec<String> = names.filter(|name| !in_use.contains(name)).collect();
        if free.is_empty() {
            return;
        }
        let old = &free[self.dice.below(free.len())];
        self.world.remove_node(old);
        let slice = ObjectKey::cluster_wide(old);
        Index::<ResourceSlice>::delete(&mut self.world.view, &slice);
        self.nodes.delete(old);
        let fabric = old.split('-').next().unwrap();
        self.nodes_made += 1;
        let new = format!("{fabric}-new{}", self.step);
        self.world.add_node(&new, fabric, &json!({}));
        self.nodes = self.world.nodes.clone();
    }

    /// A gang whose pods are not all there waits, and not for ever.
    fn check(&mut self) {
        for decision in self.world.decide() {
            let name = &decision.group.label;
            let gang = self.gangs.get_mut(name).unwrap();
            let (is_whole, waits) = (gang.whole <= self.step, self.step - gang.youngest);
            let is_late = waits >= WHOLE_WITHIN;
            match &decision.action {
                Action::Place { .. } => {
                    assert!(is_whole || is_late || gang.placed.is_some(), "{name} after {waits}");
                    gang.placed.get_or_insert(self.step);
                }
                Action::Wait(WaitingReason::NotWhole { .. }) => {
                    assert!(!is_whole && !is_late, "{name} waits for pods after {waits} steps");
                }
                Action::Wait(_) => {}
                Action::Evict { .. } => panic!("{name} is evicted"),
            }
        }
        for name in self.gangs.keys() {
            let nodes = self.world.nodes_of(name);
            let fabrics: BTreeSet<&str> =
                nodes.iter().filter_map(|node| node.split('-').next()).collect();
            assert!(fabrics.len() <= 1, "step {}: {name} is on {nodes:?}", self.step);
        }
    }

    /// What a controller keeps follows the pods one by one, as a watch reports them.
    fn follow(&mut self) {
        let mut there = BTreeSet::new();
        for pod in self.world.pods.values() {
            self.members.apply(pod);
            self.nodes.apply_pod(pod);
            there.insert(ObjectKey::new(&pod.metadata));
        }
        for gone in self.known.difference(&there) {
            self.members.delete(gone);
            self.nodes.delete_pod(gone);
        }
        self.known = there;
    }

    /// The characters of what a controller keeps.
    fn size(&self) -> usize {
        format!("{:?}{:?}", self.members.to_read(), self.nodes.to_read()).len()
    }
}

#[test]
fn in_a_month_no_gang_is_split_and_nothing_grows() {
    let mut month = Month::new();
    let (mut first, mut last) = (0, 0);
    for step in 0..MONTH {
        month.pass();
        let most = if step < 10 * DAY { &mut first } else { &mut last };
        *most = month.size().max(*most);
        if step.is_multiple_of(DAY) {
            let mut fresh = GroupPods::default();
            for pod in month.world.pods.values() {
                fresh.apply(pod);
            }
            let [kept, fresh] = [&month.members, &fresh].map(|it| format!("{:?}", it.to_read()));
            assert_eq!(kept, fresh, "day {}", step / DAY);
        }
    }
    let waiting: Vec<&String> = month
        .gangs
        .iter()
        .filter(|(_, gang)| gang.placed.is_none() && month.step - gang.youngest > 2 * DAY)
        .map(|(name, _)| name)
        .collect();
    println!("{} nodes; {first} characters at first, {last} later", month.nodes_made);
    assert!(waiting.is_empty(), "{waiting:?} wait for two days");
    assert!(last <= first + first / 2, "{first} characters in the first days, later {last}");
}
