//! What reading, building and planning cost: a node's driver does it on every
//! change, admission and the extender for every shape.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, PciAddress, Snapshot, Topology, json, matrix, read};

/// Switches with one GPU and one NIC each, on two NUMA nodes, and other functions.
fn machine_text(switches: usize, others: usize) -> String {
    let mut text = String::new();
    for node in 0..2 {
        let directory = format!("sys/devices/system/node/node{node}");
        let _ = writeln!(text, "[{directory}]\ncpulist = {node}\ndistance = 10 21");
    }
    for switch in 0..switches {
        let node = switch * 2 / switches;
        let mut function = |path: &str, class: &str| {
            let address = path.rsplit('/').next().unwrap_or(path);
            let _ = writeln!(
                text,
                "[sys/devices/{path}]\nclass = {class}\nvendor = 0x10de\ndevice = 0x1\n\
                 numa_node = {node}\nlocal_cpulist = {node}\nmax_link_speed = 32.0 GT/s PCIe\n\
                 max_link_width = 16\n/sys/bus/pci/devices/{address} -> ."
            );
        };
        let root = format!("pci{switch:04x}:00/{switch:04x}:00:01.0");
        let upstream = format!("{root}/{switch:04x}:01:00.0");
        function(&root, "0x060400");
        function(&upstream, "0x060400");
        for (port, class) in [(0, "0x030200"), (1, "0x020700")] {
            let downstream = format!("{upstream}/{switch:04x}:02:0{port}.0");
            function(&downstream, "0x060400");
            function(&format!("{downstream}/{switch:04x}:0{}:00.0", port + 3), class);
        }
    }
    for other in 0..others {
        let (bus, device, function) = (other / 256, other / 8 % 32, other % 8);
        let address = format!("ffff:{bus:02x}:{device:02x}.{function}");
        let _ = writeln!(
            text,
            "[sys/devices/pciffff:00/{address}]\nclass = 0x088000\nvendor = 0x8086\n\
             device = 0x1\nnuma_node = 0\nlocal_cpulist = 0\n/sys/bus/pci/devices/{address} -> ."
        );
    }
    text
}

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

/// The plan of a free part, which is asked for most often.
fn planning_a_part(criterion: &mut Criterion) {
    let (topology, _) = Topology::build(&snapshot(&machine_text(8, 0)), None);
    let gpus: Vec<PciAddress> = topology.gpus().iter().step_by(2).map(|gpu| gpu.address).collect();
    let nics: Vec<PciAddress> = topology.nics().iter().skip(3).map(|nic| nic.address).collect();
    criterion.bench_function("plan 4 of 8+5 of 8", |bencher| {
        bencher.iter(|| topology.plan(black_box(&gpus), black_box(&nics), 1));
    });
}

fn showing(criterion: &mut Criterion) {
    let text = machine("azure-ndh100v5").expect("the crate carries it");
    let (topology, _) = Topology::build(&snapshot(text), None);
    criterion.bench_function("matrix 8+8", |bencher| bencher.iter(|| matrix(&topology)));
    criterion.bench_function("json 8+8", |bencher| bencher.iter(|| json(&topology)));
}

criterion_group!(benches, reading, building, planning_a_part, showing);
criterion_main!(benches);
