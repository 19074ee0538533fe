//! What is decided on random gangs in a random cluster, as it was recorded: round by round, while pods come,
//! go and are bound, and nodes are cordoned.
//!
//! The tables of `placements` hold the words of fixed cases; this record holds whole decisions.

#![allow(clippy::panic, clippy::unwrap_used, missing_docs, reason = "a test may panic")]

#[path = "../../tests/src/random.rs"]
#[allow(unreachable_pub, reason = "a library has it too")]
mod random;
#[path = "../../tests/recorded/record.rs"]
mod record;
#[path = "placements/world.rs"]
mod world;

use cluster_model::fabric_level::FabricLevel;
use cluster_model::names::annotation;
use fabric_controller::{Action, Decision};
use k8s_openapi::jiff::SignedDuration;
use random::Random;
use serde_json::{Value, json};
use std::fmt::Write as _;
use world::World;

/// Clusters that are compared in every run, and those that are recorded.
const FEW: usize = 100;
const MOST: usize = 1_000;

const EVENTS: usize = 24;

fn cluster(random: &mut Random) -> World {
    let mut world = World::new(random.below(5), 1 + random.below(6));
    for rack in 0..random.below(5) {
        let fabric = format!("f{}", random.below(3));
        let nodes = 1 + random.below(4);
        match random.below(3) {
            0 => world.add_domain(&fabric, FabricLevel::Block, &format!("b{rack}"), nodes),
            1 => world.add_domain(&fabric, FabricLevel::Nvlink, &format!("r{rack}"), nodes),
            _ => world.add_rack(&fabric, &format!("b{}", rack / 2), &format!("r{rack}"), nodes),
        }
    }
    world.rules.starves_after = SignedDuration::from_secs(150);
    world
}

/// What some pods ask for besides devices.
fn spec(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({ "nodeSelector": { "kubernetes.io/hostname": "f0-n0" } }),
        1 => json!({ "priority": 100 }),
        2 => json!({ "tolerations": [{ "operator": "Exists" }] }),
        3 => {
            json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "9" } } }] })
        }
        _ => json!({}),
    }
}

fn come(world: &mut World, random: &mut Random, gang: &str) {
    let (pods, template) = (1 + random.below(5), *random.pick(&["d1", "d2", "d4"]));
    match random.below(4) {
        0 => {
            let spec = spec(random);
            for index in 0..pods {
                world.pod(&format!("{gang}-{index}"), gang, template, &spec);
            }
        }
        _ => world.gang(gang, pods, template),
    }
    let size = pods.to_string();
    let levels = ["nvlink", "block", "nvlink=preferred", "block=preferred", "nvlink,block"];
    let level = (annotation::FABRIC_LEVEL, *random.pick(&levels));
    let annotations = match random.below(8) {
        0 => vec![(annotation::FABRIC_SIZE, size.as_str())],
        1 | 2 => vec![level],
        3 => vec![level, (annotation::DOMAIN_SIZE, "2")],
        4 => vec![(annotation::FABRIC_WAIT, "60")],
        _ => vec![],
    };
    if !annotations.is_empty() {
        world.annotate(gang, &annotations);
    }
}

/// A decision with the place of each pod, or why the group waits.
fn told(Decision { group, action, warning }: &Decision) -> String {
    let action = match action {
        Action::Place { fabric, pods, domains, rest } => {
            let place = |pod: &String| {
                let domains = domains.get(pod).into_iter().flatten();
                let domains = domains.map(|domain| format!(" {}={}", domain.level, domain.name));
                format!("; {pod}{}", domains.collect::<String>())
            };
            let pods: String = pods.iter().map(place).collect();
            let rest = rest.as_ref().map(|why| format!("; the rest waits: {why}"));
            format!("to {fabric}{pods}{}", rest.unwrap_or_default())
        }
        Action::Wait(why) => format!("waits: {} {why}", why.reason()),
        Action::Evict { pods } => format!("evicts {}", pods.join(" ")),
    };
    format!("{} {action} {warning:?}", group.label)
}

fn case(seed: usize) -> String {
    let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = cluster(&mut random);
    let mut text = String::new();
    for event in 0..EVENTS {
        match random.below(12) {
            0..4 => come(&mut world, &mut random, &format!("g{event:02}")),
            4 => {
                let pods: Vec<_> = world.pods.keys().cloned().collect();
                if !pods.is_empty() {
                    let pod = &pods[random.below(pods.len())];
                    world.delete(pod);
                }
            }
            5 => {
                let names: Vec<_> = world.view.inventory().node_names().cloned().collect();
                if !names.is_empty() {
                    let node = random.pick(&names);
                    world.cordon(node);
                }
            }
            6 => world.now += i64::try_from(random.below(200)).unwrap(),
            7 => {
                let stuck = world.bind(random.below(9));
                stuck.iter().for_each(|pod| world.set_unschedulable(pod));
            }
            _ => {
                for decision in world.decide() {
                    writeln!(text, "{event} {}", told(&decision)).unwrap();
                }
                world.release();
            }
        }
    }
    text
}

#[test]
fn decisions_on_random_gangs() {
    record::compare("fabrics", &record::numbers(FEW, MOST), |seed| case(*seed));
}
