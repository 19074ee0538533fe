//! Measures `kubectl dranet`: its start, a plan on one GB300 node, and each command on a snapshot
//! of a large cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    binaries,
    figures::{megabytes, memory, refuse, say},
};

const EXAMPLE: &str = "../deploy/examples/aks-gb300";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// Times `kubectl dranet`, as shipped if `$DRANET_SHIPPED` names its folder.
#[derive(Parser)]
struct Args {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// How often each command runs; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// The cost of one run.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    peak: u64,
}

/// The limits for a command.
#[derive(Clone, Copy)]
struct Bar {
    time: Duration,
    peak: Option<u64>,
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => refuse(&error),
    }
}

/// Returns false if a command exceeds its limits.
fn measure(args: &Args) -> anyhow::Result<bool> {
    let folder = TempDir::new()?;
    let program = match std::env::var_os("DRANET_SHIPPED") {
        Some(folder) => PathBuf::from(folder).join("kubectl-dranet"),
        None => binaries::ours("kubectl-dranet")?,
    };
    let example = binaries::in_tests(EXAMPLE).display().to_string();
    let pod = format!("{example}/2nic-aligned.yaml");
    let text = folder.path().join("cluster.json");
    fs::write(&text, cluster(&example, args.nodes)?.to_string())?;
    let file = folder.path().join("cluster.gz").display().to_string();
    run(&program, &["snapshot", "--snapshot", &text.display().to_string(), "-o", &file])?;
    let size = megabytes(fs::metadata(&file)?.len());
    say(&format!("{} nodes, a snapshot of {size:.1} MB, {} runs each", args.nodes, args.runs));

    let start = Bar { time: Duration::from_millis(30), peak: None };
    let small = Bar { time: Duration::from_millis(50), peak: None };
    let large = Bar { time: Duration::from_secs(2), peak: Some(500_000_000) };
    let other = folder.path().join("other.gz").display().to_string();
    let changed = folder.path().join("changed.json");
    // Every object was written again, and the pods have ended.
    let list = fs::read_to_string(&text)?;
    let list = list.replace("\"metadata\":{", "\"metadata\":{\"resourceVersion\":\"2\",");
    fs::write(&changed, list.replace("\"Running\"", "\"Succeeded\""))?;
    run(&program, &["snapshot", "--snapshot", &changed.display().to_string(), "-o", &other])?;
    let out = folder.path().join("out.gz").display().to_string();
    let text = text.display().to_string();
    let mut rows: Vec<(Vec<&str>, Bar)> = vec![
        (vec!["version", "--client"], start),
        (vec!["plan", "-f", &pod, "--snapshot", &example], small),
        (vec!["diff", &file, &file], large),
        (vec!["diff", &file, &other], large),
        (vec!["snapshot", "-o", &out, "--snapshot", &text], large),
    ];
    for command in [
        &["graph"][..],
        &["graph", "-o", "json"],
        &["plan", "-f", &pod],
        &["plan", "-f", &pod, "-o", "json"],
        &["explain", "-f", &pod],
        &["verify", "-A"],
        &["capacity"],
        &["simulate", "-f", &pod],
        &["lint", "-A"],
        &["doctor"],
        &["fabric"],
        &["top", "--once"],
        &["snapshot", "-o", &out],
        &["snapshot", "--mask", "-o", &out],
    ] {
        rows.push(([command, &["--snapshot", &file]].concat(), large));
    }
    let mut is_good = true;
    for (command, bar) in rows {
        let mut costs = Vec::new();
        for _ in 0..args.runs {
            costs.push(run(&program, &command)?);
        }
        costs.sort_by_key(|cost| cost.time);
        let time = costs[costs.len() / 2].time;
        let peak = costs.iter().map(|cost| cost.peak).max().unwrap_or_default();
        let holds = time <= bar.time && bar.peak.is_none_or(|most| peak <= most);
        is_good &= holds;
        let is_shown = |word: &&&str| **word != "--snapshot" && **word != file;
        let is_diff = command[0] == "diff";
        let name = command.iter().filter(|word| is_diff || is_shown(word));
        let name: Vec<_> = name.map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
        say(&format!(
            "{:40} {:8.1} ms of {:6} {:8.1} MB  {}",
            name.join(" "),
            time.as_secs_f64() * 1e3,
            bar.time.as_millis(),
            megabytes(peak),
            if holds { "" } else { "TOO MUCH" },
        ));
    }
    Ok(is_good)
}

/// Runs the program to its end; exit code 3 counts as a result.
#[expect(clippy::disallowed_methods, reason = "the kernel does not notify of a new memory peak")]
fn run(program: &Path, args: &[&str]) -> anyhow::Result<Cost> {
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start `{}`", program.display()))?;
    let mut peak = 0;
    let status = loop {
        // A high-water mark, so the last value counts.
        peak = memory(child.id(), "VmHWM").unwrap_or(peak).max(peak);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    let time = begin.elapsed();
    anyhow::ensure!(matches!(status.code(), Some(0 | 3)), "{args:?}: {status}");
    Ok(Cost { time, peak })
}

/// The example's node, copied many times, with a pod on every second copy that holds a GPU and a
/// NIC.
fn cluster(example: &str, nodes: usize) -> anyhow::Result<Value> {
    let text = fs::read_to_string(format!("{example}/cluster.yaml"))?;
    let list: Value = serde_saphyr::from_str(&text)?;
    let items = list["items"].as_array().context("the example is a list")?;
    let is_class = |item: &&Value| item["kind"] == "DeviceClass";
    let mut all: Vec<Value> = items.iter().filter(is_class).cloned().collect();
    let of_node: Vec<String> =
        items.iter().filter(|item| !is_class(item)).map(ToString::to_string).collect();
    for number in 0..nodes {
        let name = format!("node-{number:05}");
        for item in &of_node {
            all.push(serde_json::from_str(&item.replace(NODE, &name))?);
        }
        if number % 2 == 0 {
            all.extend(busy(&name));
        }
    }
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": all }))
}

fn busy(node: &str) -> [Value; 2] {
    let result = |driver, device| json!({ "request": "r", "driver": driver, "pool": node, "device": device });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": node, "namespace": "default",
            "annotations": { "resource.kubernetes.io/pod-claim-name": "dranet" },
        },
        "spec": { "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
            { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
        ] } },
        "status": {
            "allocation": { "devices": { "results": [
                result("gpu.nvidia.com", "gpu-0"), result("dra.net", "pci-0101-00-00-0"),
            ] } },
            "reservedFor": [{ "resource": "pods", "name": node, "uid": node }],
        },
    });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": node, "namespace": "default",
            "annotations": { "dranet.io/aligned-nics": "1" },
        },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "main", "image": "main" }],
            "resourceClaims": [{ "name": "dranet", "resourceClaimTemplateName": "dranet-1" }],
        },
        "status": {
            "phase": "Running",
            "resourceClaimStatuses": [{ "name": "dranet", "resourceClaimName": node }],
        },
    });
    [claim, pod]
}
