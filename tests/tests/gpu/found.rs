//! What others find: the program in the pod, `nvidia-smi` and NCCL.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::Context;
use posted::PostedMatrix;
use tests::{node::links::shell, suite};
use topology_graph::{NcclXml, Overlay, PciAddress, Topology, matrix};

use super::record;

/// The UUIDs and addresses of the GPUs in the output of `check.c`.
pub(crate) fn gpus(log: &str) -> anyhow::Result<Vec<(&str, PciAddress)>> {
    let mut gpus = Vec::new();
    for line in lines(log, "GPU ") {
        let mut words = line.split(' ');
        let (uuid, bus) = (words.next(), words.next());
        gpus.push((uuid.context("a UUID")?, bus.context("a bus ID")?.to_lowercase().parse()?));
    }
    Ok(gpus)
}

/// The numbers of right results.
pub(crate) fn sums(log: &str) -> Vec<&str> {
    lines(log, "SUM ").collect()
}

/// The interfaces in the pod.
pub(crate) fn interfaces(log: &str) -> Vec<&str> {
    lines(log, "IF ").collect()
}

fn lines<'t>(log: &'t str, kind: &str) -> impl Iterator<Item = &'t str> {
    log.lines().filter_map(move |line| line.strip_prefix(kind))
}

/// Checks paths, CPUs and NUMA nodes of the graph against `nvidia-smi topo -m`.
pub(crate) fn compare_with_nvidia_smi(topology: &Topology) -> anyhow::Result<()> {
    let text = shell("nvidia-smi topo -m")?;
    record::file("topo.txt", &text)?;
    // One GPU without an RDMA NIC makes a matrix without paths.
    if topology.gpus().len() > 1 {
        let comparison = PostedMatrix::parse(&text)?.compare(topology);
        anyhow::ensure!(comparison.differences.is_empty(), "{comparison}\n{text}");
    }
    let (theirs, ours) = (affinities(&text), affinities(&matrix(topology)));
    anyhow::ensure!(!ours.is_empty() && theirs == ours, "{ours:?}, and nvidia-smi says\n{text}");
    suite::report(&format!("as nvidia-smi says: {ours:?}"));
    Ok(())
}

/// The CPUs and the NUMA node of each GPU in a matrix.
fn affinities(text: &str) -> Vec<[String; 2]> {
    let mut columns = 0;
    let mut all = Vec::new();
    for line in text.lines() {
        // Without the control characters that underline the head.
        let line = line.replace("\x1b[4m", "").replace("\x1b[0m", "");
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(end) = words.iter().position(|word| *word == "CPU") {
            columns = end;
        } else if line.starts_with("GPU")
            && let [cpus, numa, ..] = words.get(1 + columns..).unwrap_or_default()
        {
            all.push([(*cpus).to_owned(), (*numa).to_owned()]);
        }
    }
    all
}

/// Checks GPUs and interfaces of the graph, and the paths between GPUs, against those that NCCL finds.
pub(crate) fn compare_with_nccl(
    topology: &Topology,
    check: &Path,
    folder: &Path,
) -> anyhow::Result<()> {
    let dump = folder.join("nccl.xml");
    let output = Command::new(check)
        .arg("nccl")
        .env("NCCL_TOPO_DUMP_FILE", &dump)
        .env("NCCL_DEBUG", "WARN")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("libnccl") {
        suite::report(&format!("not compared with NCCL: {said}"));
        return Ok(());
    }
    anyhow::ensure!(output.status.success(), "NCCL: {said}");
    let text = fs::read_to_string(&dump)?;
    record::file("nccl.xml", &text)?;
    let (theirs, _) = Topology::from_overlay(&Overlay::from_nccl_xml(&NcclXml::parse(&text)?));
    let addresses = |topology: &Topology| -> BTreeSet<PciAddress> {
        topology.gpus().iter().map(|gpu| gpu.address).collect()
    };
    let gpus = addresses(topology);
    anyhow::ensure!(!gpus.is_empty() && gpus == addresses(&theirs), "{gpus:?}\n{text}");
    for (a, b) in gpus.iter().flat_map(|a| gpus.iter().map(move |b| (*a, *b))) {
        let (ours, other) = (topology.path(a, b), theirs.path(a, b));
        anyhow::ensure!(ours == other, "{a} {b}: {ours}, and NCCL says {other}\n{text}");
    }
    for nic in topology.nics().iter().filter(|nic| nic.rdma_device.is_none()) {
        for interface in &nic.netdevs {
            let named = text.contains(&format!("name=\"{interface}\""));
            anyhow::ensure!(named, "NCCL does not know {interface}\n{text}");
        }
    }
    suite::report(&format!("as NCCL says: {gpus:?}"));
    Ok(())
}
