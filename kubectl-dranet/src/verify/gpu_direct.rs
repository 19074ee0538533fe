//! Checks whether the NICs of a pod can read and write the memory of its GPUs, from what
//! node-driver publishes about ports, IOMMU and the GPU's driver.

use crate::answer::{GpuDirect, Verified};
use crate::doctor::gpu_direct::remedy;
use crate::doctor::modules::peer_memory;
use crate::text::table;
use cluster_model::view::ClusterView;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use topology_graph::{Gdr, NodeTopology, Pair, PciAddress, Topology};

/// Whether the NIC of a pair on a node can reach the memory of its GPU.
pub(super) fn of_pair(view: &ClusterView, node: &str, pair: &Pair) -> GpuDirect {
    let published = view.topology(node).zip(view.node_topology(node));
    let (verdict, evidence) = published.map_or_else(
        || (Gdr::Unknown, "the node publishes no NodeTopology".to_owned()),
        |(graph, object)| verdict(graph, object, pair),
    );
    let (why, what_to_do) = remedy(verdict).unzip();
    GpuDirect {
        verdict,
        evidence,
        why: why.map(str::to_owned),
        what_to_do: what_to_do.map(str::to_owned),
    }
}

/// The verdict about a pair, and the facts behind it.
fn verdict(graph: &Topology, object: &NodeTopology, pair: &Pair) -> (Gdr, String) {
    let mut nics = object.spec.nics.iter();
    let nic = nics.find(|nic| nic.at.parse::<PciAddress>().is_ok_and(|at| at == pair.nic));
    let number = graph.gpus().iter().position(|gpu| gpu.address == pair.gpu);
    let published = nic.into_iter().flat_map(|nic| &nic.gpu_direct).find(|spec| {
        spec.gpus.iter().any(|gpu| usize::try_from(*gpu).is_ok_and(|gpu| Some(gpu) == number))
    });
    let verdict = published.and_then(|spec| spec.verdict.parse().ok()).unwrap_or(Gdr::Unknown);
    let ports = nic.and_then(|nic| nic.acs.as_deref());
    let ports = ports.map_or_else(
        || "what the ports above the NIC do with requests to peers is not known".to_owned(),
        |acs| format!("requests to peers at the ports above the NIC: {acs}"),
    );
    let memory = peer_memory(object).map_or_else(String::new, |how| format!("; {how}"));
    (verdict, format!("path {}; {ports}{memory}", pair.path))
}

/// The verdicts of all pairs, and for each one that is blocked the reason and what to do.
pub(super) fn person(verified: &[Verified]) -> anyhow::Result<String> {
    let (mut rows, mut stopped) = (Vec::new(), BTreeSet::new());
    for pod in verified {
        for pair in &pod.pairs {
            let (Some(known), [gpu, nic]) = (&pair.gpu_direct, &pair.names) else { continue };
            if let Some(remedy) = known.why.as_ref().zip(known.what_to_do.as_ref()) {
                stopped.insert((known.verdict, remedy));
            }
            rows.push(vec![
                pod.pod.clone(),
                gpu.clone(),
                nic.clone(),
                known.verdict.to_string(),
                known.evidence.clone(),
            ]);
        }
    }
    let mut out = String::new();
    if rows.is_empty() {
        return Ok(out);
    }
    write!(out, "\n{}", table(&["POD", "GPU", "NIC", "GPUDIRECT RDMA", "EVIDENCE"], &rows))?;
    for (verdict, (why, what_to_do)) in stopped {
        writeln!(out, "\n{verdict}: {why}; {what_to_do}")?;
    }
    Ok(out)
}
