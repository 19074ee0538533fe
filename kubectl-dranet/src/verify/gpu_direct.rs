//! Checks whether the NICs of a pod can read and write the memory of its GPUs, from what
//! node-driver publishes about ports, IOMMU and the GPU's driver.

use super::found::{GpuDirect, NamedPair, Verified};
use crate::doctor::gpu_direct::remedy;
use crate::doctor::modules::peer_memory;
use crate::text::table;
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use topology_graph::{Gdr, NodeTopology, PciAddress, Topology};

/// Adds the verdict to each pair.
pub(super) fn add(view: &ClusterView, verified: &mut [Verified]) {
    let objects: BTreeMap<&str, &NodeTopology> = view.node_topologies().collect();
    for pod in verified {
        let graph = view.topology(&pod.node);
        let object = objects.get(pod.node.as_str());
        for pair in &mut pod.pairs {
            let known = graph.zip(object).map(|(graph, object)| of_pair(graph, object, pair));
            pair.gpu_direct = Some(known.unwrap_or_else(|| GpuDirect {
                verdict: Gdr::Unknown,
                evidence: "the node publishes no NodeTopology".to_owned(),
            }));
        }
    }
}

fn of_pair(graph: &Topology, object: &NodeTopology, pair: &NamedPair) -> GpuDirect {
    let is_it = |at: &str| at.parse::<PciAddress>().is_ok_and(|at| at == pair.nic_address);
    let nic = object.spec.nics.iter().find(|nic| is_it(&nic.at));
    let number = graph.gpus().iter().position(|gpu| gpu.address == pair.gpu_address);
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
    GpuDirect { verdict, evidence: format!("path {}; {ports}{memory}", pair.path) }
}

/// The verdicts of all pairs, and for each one that is blocked the reason and what to do.
pub(super) fn person(verified: &[Verified]) -> anyhow::Result<String> {
    let (mut rows, mut stopped) = (Vec::new(), BTreeSet::new());
    for pod in verified {
        for pair in &pod.pairs {
            let Some(known) = &pair.gpu_direct else { continue };
            stopped.extend(known.is_blocked().then_some(known.verdict));
            rows.push(vec![
                pod.pod.clone(),
                pair.gpu.clone(),
                pair.nic.clone(),
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
    for verdict in stopped {
        if let Some((why, what_to_do)) = remedy(verdict) {
            writeln!(out, "\n{verdict}: {why}; {what_to_do}")?;
        }
    }
    Ok(out)
}
