//! Measures reading, building and planning: the node driver runs them on every change, admission
//! and the extender for every shape.

use std::fmt::Write;
use std::hint::black_box;

#[path = "graph/machine.rs"]
mod machines;

use criterion::{Criterion, criterion_group, criterion_main};
use machines::machine_text;
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, PciAddress, PlanRequest, Snapshot, Topology, json, matrix, read};

fn snapshot(text: &str) -> Snapshot {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    plant(text, root.path()).expect("the text is sound");
    read(&HostRoot::at(root.path())).expect("there is a sysfs")
}

fn reading(criterion: &mut Criterion) {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    plant(&machine_text(16, 504), root.path()).expect("the text is sound");
    let host = HostRoot::at(root.path());
    criterion.bench_function("read 600 functions", |bencher| {
        bencher.iter(|| read(black_box(&host)));
    });
}

fn building(criterion: &mut Criterion) {
    for count in [8, 16, 128] {
        let snapshot = snapshot(&machine_text(count, 0));
        criterion.bench_function(&format!("build {count}+{count}"), |bencher| {
            bencher.iter(|| Topology::build(black_box(&snapshot), None));
        });
        let (topology, _) = Topology::build(&snapshot, None);
        criterion.bench_function(&format!("all pairs {count}+{count}"), |bencher| {
            bencher.iter(|| black_box(&topology).all_paths());
        });
        criterion.bench_function(&format!("plan {count}+{count}"), |bencher| {
            bencher.iter(|| black_box(&topology).pairs());
        });
    }
}

/// The same machine, with this number of virtual functions for each NIC.
fn with_virtual_functions(text: &str, each: usize) -> String {
    let mut all = text.to_owned();
    let headers =
        text.lines().filter_map(|line| line.strip_prefix("[sys/devices/")?.strip_suffix(']'));
    for path in headers.filter(|path| path.ends_with("04:00.0")) {
        let Some((above, physical)) = path.rsplit_once('/') else { continue };
        let Some((bus, _)) = physical.rsplit_once(':') else { continue };
        for function in 1..=each {
            let address = format!("{bus}:{:02x}.{}", function / 8, function % 8);
            let _ = writeln!(
                all,
                "[sys/devices/{above}/{address}]\nclass = 0x020700\nvendor = 0x10de\ndevice = 0x2\n\
                 numa_node = 0\nlocal_cpulist = 0\nphysfn -> /sys/devices/{path}\n\
                 /sys/bus/pci/devices/{address} -> ."
            );
        }
    }
    all
}

/// Eight NICs with 127 functions each: more than a thousand endpoints.
fn many_functions(criterion: &mut Criterion) {
    let snapshot = snapshot(&with_virtual_functions(&machine_text(8, 0), 127));
    let (topology, _) = Topology::build(&snapshot, None);
    assert!(topology.nics().len() > 1_000, "{}", topology.nics().len());
    let mut group = criterion.benchmark_group("1,000 functions");
    group.sample_size(10);
    group.bench_function("build", |bencher| {
        bencher.iter(|| Topology::build(black_box(&snapshot), None));
    });
    group.bench_function("all pairs", |bencher| bencher.iter(|| topology.all_paths()));
    group.bench_function("json", |bencher| bencher.iter(|| json(&topology)));
    group.finish();
}

/// The plan of a free part, which is the most frequent request.
fn planning_a_part(criterion: &mut Criterion) {
    let (topology, _) = Topology::build(&snapshot(&machine_text(8, 0)), None);
    let gpus: Vec<PciAddress> = topology.gpus().iter().step_by(2).map(|gpu| gpu.address).collect();
    let nics: Vec<PciAddress> = topology.nics().iter().skip(3).map(|nic| nic.address).collect();
    let request = PlanRequest::each(&gpus, &nics, 1);
    criterion.bench_function("plan 4 of 8+5 of 8", |bencher| {
        bencher.iter(|| topology.plan(black_box(&request)));
    });
}

fn showing(criterion: &mut Criterion) {
    let text = machine("azure-ndh100v5").expect("the crate carries it");
    let (topology, _) = Topology::build(&snapshot(text), None);
    criterion.bench_function("matrix 8+8", |bencher| bencher.iter(|| matrix(&topology)));
    criterion.bench_function("json 8+8", |bencher| bencher.iter(|| json(&topology)));
}

criterion_group!(benches, reading, building, planning_a_part, showing, many_functions);
criterion_main!(benches);
