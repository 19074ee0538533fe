//! Chooses the fabric for a gang of 512 pods on 5,000 nodes.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may panic")]

#[path = "../tests/placements/world.rs"]
mod world;

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
    // Each pod takes a whole node. No fabric is large enough, which takes longest to
    // decide.
    let mut world = World::new(FABRICS, NODES);
    world.gang("gang", PODS, "d4");
    group.bench_function("too large", |bencher| bencher.iter(|| world.decide()));
    group.finish();
}

criterion_group!(benches, choices);
criterion_main!(benches);
