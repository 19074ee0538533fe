//! The reservation of the first waiting job.

use std::collections::BTreeSet;

use crate::claims::{ClaimError, Placer};
use crate::cluster::Cluster;
use crate::machine::Devices;
use crate::workload::{Millis, Task};

/// Nodes that are reserved for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    /// When all of them have room for it.
    pub(super) start: Millis,
    /// The nodes, one for each of its pods.
    pub(super) nodes: BTreeSet<usize>,
}

/// The earliest time at which the job's pods fit on one fabric, and nodes for them, if
/// devices are freed at these times, which must be sorted.
///
/// Among the nodes of that fabric, chooses those with the fewest GPUs in use now.
pub(super) fn reserve(
    task: &Task,
    cluster: &Cluster,
    frees: impl IntoIterator<Item = (Millis, usize, Devices)>,
    placer: &mut Placer,
) -> Result<Option<Reservation>, ClaimError> {
    let Some(most) = task.pods.iter().max().copied() else { return Ok(None) };
    let most = task.shape(most, placer.claims());
    let mut busy: Vec<Devices> = cluster.nodes.iter().map(|node| node.busy).collect();
    let mut fits = Vec::with_capacity(busy.len());
    for (node, busy) in cluster.nodes.iter().zip(&busy) {
        fits.push(placer.place(node.kind, *busy, most)?.is_some());
    }
    let mut room = vec![0; cluster.fabrics()];
    for (node, _) in cluster.nodes.iter().zip(&fits).filter(|(_, fits)| **fits) {
        room[node.fabric] += 1;
    }
    for (time, node, devices) in frees {
        busy[node] &= !devices;
        let state = &cluster.nodes[node];
        if fits[node] || placer.place(state.kind, busy[node], most)?.is_none() {
            continue;
        }
        fits[node] = true;
        room[state.fabric] += 1;
        if room[state.fabric] < task.pods.len() {
            continue;
        }
        let mut nodes: Vec<usize> = (0..fits.len())
            .filter(|node| fits[*node] && cluster.nodes[*node].fabric == state.fabric)
            .collect();
        nodes.sort_by_key(|node| (cluster.gpus_in_use(*node), *node));
        let nodes = nodes.into_iter().take(task.pods.len()).collect();
        return Ok(Some(Reservation { start: time, nodes }));
    }
    Ok(None)
}
