//! How long an answer takes: 5,000 nodes with 8 GPUs and 8 NICs, half busy at random,
//! pods of four shapes. Of the decision alone, without HTTP.
//!
//! `cargo run --release -p scheduler-ext --example ranking`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for a person")]

use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use scheduler_ext::prioritize::Ranker;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use topology_graph::{Overlay, PciAddress, Topology};

const MACHINE: &str = "Standard_ND96isr_H100_v5";
const NODES: usize = 5_000;
const SAMPLE: usize = 500;
const ROUNDS: usize = 20;

fn main() {
    let (topology, _) = Topology::from_overlay(&Overlay::built_in(MACHINE).unwrap());
    let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
    let nics: Vec<_> = topology.nics().iter().map(|nic| nic.address).take(8).collect();
    let mut view = ClusterView::default();
    for (class, driver) in [("gpu.nvidia.com", "gpu.nvidia.com"), ("dranet.net", "dra.net")] {
        let expression = format!("device.driver == \"{driver}\"");
        let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
        let class = json!({"metadata": {"name": class}, "spec": spec});
        view.apply(from::<DeviceClass>(&class)).unwrap();
    }
    let names: Vec<String> = (0..NODES).map(|number| format!("node-{number:04}")).collect();
    let mut random = 1_u64;
    let start = Instant::now();
    for name in &names {
        view.apply(from::<Node>(&json!({"metadata": {"name": name}}))).unwrap();
        view.apply(slice(name, "gpu.nvidia.com", &gpus)).unwrap();
        view.apply(slice(name, "dra.net", &nics)).unwrap();
        view.apply(busy(name, next(&mut random))).unwrap();
    }
    println!("{NODES} nodes, {} slices in the view after {:?}", 2 * NODES, start.elapsed());
    let counts = [1, 2, 4, 8];
    for count in counts {
        view.apply(template(count)).unwrap();
    }
    let ranker = Ranker::default();
    time("learn", 1, || ranker.learn(&view));
    for count in counts {
        let pod = pod(count);
        for sample in [SAMPLE, NODES] {
            let asked = &names[..sample];
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for name in asked {
                    view.apply(busy(name, next(&mut random))).unwrap();
                }
                for times in &mut times {
                    let start = Instant::now();
                    ranker.prioritize(&pod, asked, &view, start, &|| false);
                    times.push(start.elapsed());
                }
            }
            let [mut changed, mut warm] = times;
            let text = (worst(&mut changed), worst(&mut warm));
            println!(
                "{count} pairs, {sample} names: {:?} after a change, {:?} warm",
                text.0, text.1
            );
        }
    }
    let plain = from(&json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
    time("pod without claims", 1_000, || {
        ranker.prioritize(&plain, &names, &view, Instant::now(), &|| false);
    });
}

/// The slowest of the rounds.
fn worst(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.last().copied().unwrap_or_default()
}

fn time(what: &str, times: u32, mut run: impl FnMut()) {
    let start = Instant::now();
    for _ in 0..times {
        run();
    }
    println!("{what}: {:?}", start.elapsed() / times);
}

/// xorshift64: the same cluster in every run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn slice(node: &str, driver: &str, addresses: &[PciAddress]) -> ResourceSlice {
    let devices: Vec<Value> = addresses
        .iter()
        .enumerate()
        .map(|(number, address)| {
            let bus = json!({"string": address.to_string()});
            let mut attributes = json!({"resource.kubernetes.io/pciBusID": bus});
            if driver == "dra.net" {
                attributes["azure.dra.net/vmSize"] = json!({"string": MACHINE});
                attributes["dra.net/rdma"] = json!({"bool": true});
            } else {
                attributes["type"] = json!({"string": "gpu"});
            }
            // Partners have one number.
            attributes["resource.kubernetes.io/numaNode"] = json!({"int": number / 4});
            json!({"name": format!("d{number}"), "attributes": attributes})
        })
        .collect();
    from(&json!({"metadata": {"name": format!("{node}-{driver}")}, "spec": {
        "driver": driver, "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
    }}))
}

/// What one claim holds on a node: devices by the bits of a number.
fn busy(node: &str, bits: u64) -> ResourceClaim {
    let held = (0..16).filter(|bit| bits >> (bit + 20) & 1 == 1).map(|bit| {
        let driver = if bit < 8 { "gpu.nvidia.com" } else { "dra.net" };
        let device = format!("d{}", bit % 8);
        json!({"request": "r", "driver": driver, "pool": node, "device": device})
    });
    from(&json!({"metadata": {"namespace": "n", "name": node}, "spec": {},
        "status": {"allocation": {"devices": {"results": held.collect::<Vec<_>>()}}}}))
}

/// So many pairs, on one NUMA node where they fit there.
fn template(count: usize) -> ResourceClaimTemplate {
    let request = |name: &str, class: &str| json!({"name": name, "exactly": {"deviceClassName": class, "count": count}});
    let near = json!([{"requests": ["gpu", "nic"],
        "matchAttribute": "resource.kubernetes.io/numaNode"}]);
    let constraints = if count <= 4 { near } else { json!([]) };
    let requests = [request("gpu", "gpu.nvidia.com"), request("nic", "dranet.net")];
    from(&json!({"metadata": {"namespace": "n", "name": format!("t{count}")},
        "spec": {"spec": {"devices": {"requests": requests, "constraints": constraints}}}}))
}

fn pod(count: usize) -> Pod {
    let claim = json!({"name": "c", "resourceClaimTemplateName": format!("t{count}")});
    from(&json!({"metadata": {"namespace": "n", "name": "p"},
        "spec": {"containers": [], "resourceClaims": [claim]}}))
}

fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}
