//! Chooses the fabric for a gang of 512 pods on 5,000 nodes.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may panic")]

#[path = "../tests/placements/world.rs"]
mod world;

use cluster_model::names::annotation;
use criterion::{Criterion, criterion_group, criterion_main};
use world::World;

/// 5,000 nodes on 10 fabrics.
const FABRICS: usize = 10;
const NODES: usize = 500;
const PODS: usize = 512;

fn choices(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a gang of 512 pods on 5,000 nodes");
    group.sample_size(10);
    for (name, template) in [("one device each", "d1"), ("two devices each", "d2")] {
        let mut world = World::new(FABRICS, NODES);
        world.gang("gang", PODS, template);
        assert!(world.told()["gang"].starts_with("512 to f"), "{:?}", world.told());
        group.bench_function(name, |bencher| bencher.iter(|| world.decide()));
    }
    // 278 NVLink domains of 18 nodes in 8 blocks on 4 fabrics. Slices of 16 pods, each of which takes a
    // whole node, share an NVLink domain, and all share a block.
    let mut world = World::new(0, 0);
    for rack in 0..278 {
        let (fabric, block) = (rack / 70, rack / 35);
        world.add_rack(&format!("f{fabric}"), &format!("b{block}"), &format!("r{rack:03}"), 18);
    }
    world.gang("gang", PODS, "d4");
    world.annotate(
        "gang",
        &[(annotation::FABRIC_LEVEL, "block,nvlink"), (annotation::DOMAIN_SIZE, "16")],
    );
    assert!(world.told()["gang"].starts_with("512 to f"), "{:?}", world.told());
    group.bench_function("in four levels", |bencher| bencher.iter(|| world.decide()));
    // Each pod takes a whole node. No fabric is large enough, which takes longest to
    // decide.
    let mut world = World::new(FABRICS, NODES);
    world.gang("gang", PODS, "d4");
    group.bench_function("too large", |bencher| bencher.iter(|| world.decide()));
    group.finish();
}

criterion_group!(benches, choices);
criterion_main!(benches);
