//! Decides who leaves for a pod and for a job, on 5,000 nodes with 20,000 pods.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may panic")]

#[path = "../tests/preemptions/world.rs"]
mod world;

use cluster_model::names::label;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use world::{World, any, near, started};

const NODES: usize = 5_000;
const FABRICS: usize = 50;

/// Each node has two cells, and four pods with a GPU and a NIC of five priorities.
fn full() -> World {
    let mut world = World::new();
    let mut number = 0_usize;
    for node in 0..NODES {
        let name = format!("n{node:04}");
        world.node(&name, 2, &json!({label::NODE_FABRIC: format!("f{}", node % FABRICS)}));
        for slot in 0..4 {
            number += 1;
            let priority = i32::try_from(number.wrapping_mul(7) % 5).unwrap();
            let seconds = i64::try_from(number.wrapping_mul(7_919) % 86_400).unwrap();
            let pod = format!("p{node:04}-{slot}");
            assert!(world.run(&pod, (priority, &name), near(1, 1), &started(seconds)));
        }
    }
    world
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("20,000 pods on 5,000 nodes");
    group.sample_size(10);
    let full = full();
    for (name, devices) in
        [("a GPU and its NIC", near(1, 1)), ("a cell", near(2, 2)), ("a node", any(4, 4))]
    {
        let mut world = full.clone();
        world.wait("high", 10, devices, &json!({}));
        assert!(world.decide().preemption.is_some());
        group.bench_function(name, |bencher| bencher.iter(|| world.decide()));
    }
    let mut world = full.clone();
    world.wait("high", 10, any(4, 5), &json!({}));
    assert_eq!(world.told(), "high: DoesNotHelp");
    group.bench_function("nothing helps", |bencher| bencher.iter(|| world.decide()));
    let mut world = full;
    world.sizes.insert("train".to_owned(), 16);
    for number in 0..16 {
        world.gated(&format!("train-{number:02}"), "train", 10, any(4, 4));
    }
    assert!(world.decide().preemption.is_some());
    group.bench_function("16 whole nodes of one fabric", |bencher| bencher.iter(|| world.decide()));
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
