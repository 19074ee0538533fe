//! Makes a new plan on a large cluster: 5,000 nodes of three shapes.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may panic")]

#[path = "../tests/plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::Policy;
use cluster::{GB300, H100, MI300X, add_all, cluster, pod};
use cluster_model::view::ClusterView;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

/// Nodes of each shape; 5,000 in all.
const NODES: [(usize, cluster::Machine); 3] = [(2_500, GB300), (2_000, H100), (500, MI300X)];

fn large() -> ClusterView {
    let mut view = cluster(&[]);
    for (index, (count, machine)) in NODES.into_iter().enumerate() {
        let names: Vec<_> = (0..count).map(|node| format!("node-{index}-{node:04}")).collect();
        add_all(&mut view, &names, machine);
    }
    view
}

fn plans(criterion: &mut Criterion) {
    let view = large();
    let mut group = criterion.benchmark_group("a new plan on 5,000 nodes");
    group.sample_size(20);
    for (name, resource, gpus, annotations) in [
        ("1 GPU + 1 NIC", "nvidia.com/gpu", 1, &[("aligned-nics", "1")][..]),
        ("1 GPU + 2 NICs", "nvidia.com/gpu", 1, &[("aligned-nics", "2")]),
        ("4 pairs", "nvidia.com/gpu", 4, &[("aligned-nics", "per-gpu")]),
        ("6 pairs of MI300X", "amd.com/gpu", 6, &[("aligned-nics", "per-gpu")]),
        (
            "2 pairs, preferred",
            "nvidia.com/gpu",
            2,
            &[("aligned-nics", "per-gpu"), ("alignment-policy", "preferred")],
        ),
        ("a denial", "nvidia.com/gpu", 8, &[("aligned-nics", "8"), ("pairing", "group")]),
    ] {
        let pod = pod(resource, gpus, annotations);
        group.bench_function(name, |bencher| {
            bencher.iter(|| admit(black_box(&pod), &view, &Policy::default()));
        });
    }
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
