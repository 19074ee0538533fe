//! Measures the index: the time to load a large cluster, the memory that it takes, and the time of
//! one claim on all nodes.
//!
//! ```text
//! cargo run --release -p dra-allocator --example index
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "measuring needs a clock and the process's memory")]

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use dra_allocator::{Claim, Inventory, Limits, MinorVersion, Settings, survey};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

/// Measures the index with a synthetic large cluster: half of each node's devices are GPUs, half
/// NICs, in two cells.
#[derive(Parser)]
struct Args {
    /// The number of nodes.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// The number of devices per node and kind.
    #[arg(long, default_value_t = 8)]
    devices: usize,
    /// The number of repetitions; the fastest counts.
    #[arg(long, default_value_t = 10)]
    runs: u32,
}

/// The resident memory of the process, in bytes.
fn resident() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kilobytes.trim().parse::<usize>()? * 1024)
}

/// The slice of a driver on a node. `own` adds an attribute whose value is unique to the node.
fn slice(args: &Args, driver: &str, node: usize, own: bool) -> Result<ResourceSlice> {
    let devices = (0..args.devices).map(|device| {
        let cell = device * 2 / args.devices;
        let mut attributes = json!({
            "resource.kubernetes.io/pciBusID": {"string": format!("{node:04x}:{device:02x}:00.0")},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{cell:02x}")},
            "resource.kubernetes.io/numaNode": {"int": cell},
            "uuid": {"string": format!("{driver}-{node}-{device}")},
            "index": {"int": device},
            "type": {"string": driver},
            "productName": {"string": "a product with a name of some length"},
            "architecture": {"string": "an architecture"},
            "driverVersion": {"version": "580.0.1"},
            "cudaComputeCapability": {"version": "10.3.0"},
            "rdma": {"bool": true},
            "mtu": {"int": 4096},
        });
        if own {
            attributes["serial"] = json!({"int": node});
        }
        json!({
            "name": format!("{driver:.3}-{device}"),
            "attributes": attributes,
            "capacity": {"memory": {"value": "280Gi"}},
        })
    });
    let devices: Vec<Value> = devices.collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{node:05}-{driver}")},
        "spec": {
            "driver": driver,
            "nodeName": format!("node-{node:05}"),
            "pool": {"name": format!("node-{node:05}"), "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }))?)
}

const DRIVERS: [&str; 2] = ["gpu.example.com", "nic.example.com"];

/// Loads the slices. Returns the index and the time taken.
fn load(args: &Args, own: bool) -> Result<(Inventory, Duration)> {
    let (mut inventory, mut took) = (Inventory::new(), Duration::ZERO);
    for node in 0..args.nodes {
        let name = format!("node-{node:05}");
        inventory.apply_node(&serde_json::from_value(json!({"metadata": {"name": name}}))?)?;
        for driver in DRIVERS {
            let slice = slice(args, driver, node, own)?;
            let start = Instant::now();
            inventory.apply_slice(&slice)?;
            took += start.elapsed();
        }
    }
    for driver in DRIVERS {
        let expression = format!("device.driver == \"{driver}\"");
        let selectors = json!([{"cel": {"expression": expression}}]);
        let class = json!({"metadata": {"name": &driver[..3]}, "spec": {"selectors": selectors}});
        inventory.apply_class(&serde_json::from_value(class)?)?;
    }
    Ok((inventory, took))
}

/// Two GPUs and two NICs of one NUMA node; `own` adds a selector on the attribute that is unique to
/// each node.
fn claim(own: bool) -> Result<Claim> {
    let expression = "device.attributes[\"gpu.example.com\"].?serial.orValue(0) >= 0";
    let mut gpus = json!({"deviceClassName": "gpu", "count": 2});
    if own {
        gpus["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    let requests = json!([
        {"name": "gpus", "exactly": gpus},
        {"name": "nics", "exactly": {"deviceClassName": "nic", "count": 2}},
    ]);
    let constraints = json!([{"matchAttribute": "resource.kubernetes.io/numaNode"}]);
    let claim = json!({
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    });
    Ok(Claim::try_from(&serde_json::from_value(claim)?)?)
}

/// Allocates devices on each node; the number varies with the node's number, from none to all.
fn use_some(args: &Args, inventory: &mut Inventory) -> Result<()> {
    for node in 0..args.nodes {
        let pool = format!("node-{node:05}");
        let taken = 2 * (node % (args.devices / 2 + 1));
        let results = DRIVERS.into_iter().flat_map(|driver| {
            let pool = pool.clone();
            (0..taken).map(move |device| {
                let device = format!("{driver:.3}-{device}");
                json!({"request": "r", "driver": driver, "pool": pool, "device": device})
            })
        });
        let results: Vec<Value> = results.collect();
        inventory.apply_claim(&serde_json::from_value(json!({
            "metadata": {"name": format!("claim-{node}"), "namespace": "default"},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        }))?)?;
    }
    Ok(())
}

/// Runs the claim on all nodes. Returns the number of searches, and the time without and with
/// writing the result in each node's names.
fn ask(args: &Args, inventory: &Inventory, own: bool) -> Result<(usize, Duration, Duration)> {
    let claims = [claim(own)?];
    let (settings, limits) = (Settings::defaults_of(MinorVersion::V1_37), Limits::steps(10_000));
    let state = inventory.state();
    let nodes: Vec<_> = inventory.node_names().map(|name| &**name).collect();
    let (mut answered, mut told, mut groups) = (Duration::MAX, Duration::MAX, 0);
    for _ in 0..args.runs {
        let start = Instant::now();
        let nodes = nodes.iter().copied();
        let survey = survey(inventory, nodes, &claims, state, &settings, limits);
        answered = answered.min(start.elapsed());
        survey.attempts().for_each(|attempt| drop(black_box(attempt)));
        told = told.min(start.elapsed());
        groups = survey.groups().len();
    }
    Ok((groups, answered, told))
}

fn main() -> Result<()> {
    let args = Args::parse();
    let before = resident()?;
    let (alike, took) = load(&args, false)?;
    let held = resident()?.saturating_sub(before) / 1_000_000;
    let devices = 2 * args.devices;
    println!("{} nodes with {devices} devices: loaded in {took:.2?}, {held} MB", args.nodes);
    let mut used = alike.clone();
    use_some(&args, &mut used)?;
    let (mut different, _) = load(&args, true)?;
    use_some(&args, &mut different)?;
    for (name, inventory, own) in [
        ("one claim on all nodes, alike and free", &alike, false),
        ("alike, of different use", &used, false),
        ("each node different", &different, true),
    ] {
        let (groups, answered, told) = ask(&args, inventory, own)?;
        println!(
            "{name}: {answered:.1?}, {told:.1?} with every node's devices ({groups} searches)"
        );
    }
    Ok(())
}
