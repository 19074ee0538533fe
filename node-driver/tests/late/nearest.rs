//! The nearest NICs by trying all.

use super::stage::Pod;
use std::collections::BTreeSet;
use topology_graph::{PathKind, PciAddress, Topology};

/// The NICs' device names, as addresses.
fn addresses(nics: &BTreeSet<String>) -> Vec<PciAddress> {
    let address = |name: &String| {
        let parts: Vec<&str> = name.strip_prefix("pci-").unwrap().split('-').collect();
        format!("{}:{}:{}.{}", parts[0], parts[1], parts[2], parts[3]).parse().unwrap()
    };
    nics.iter().map(address).collect()
}

/// The greatest worth of all sets of free NICs; `None` if no set serves the pod.
pub(crate) fn best(topology: &Topology, pod: &Pod, free: &BTreeSet<String>) -> Option<i64> {
    let free = addresses(free);
    if free.len() < pod.nics {
        return None;
    }
    let sets = (0..1_u32 << free.len()).filter(|set| set.count_ones() as usize == pod.nics);
    let sets = sets.map(|set| {
        let chosen = free.iter().enumerate().filter(|(index, _)| set & (1 << index) != 0);
        chosen.map(|(_, nic)| *nic).collect::<Vec<_>>()
    });
    sets.filter_map(|nics| worth_of(topology, pod, &nics)).max()
}

/// The worth of these NICs for the pod; `None` if they do not serve it.
pub(crate) fn most_of(topology: &Topology, pod: &Pod, nics: &BTreeSet<String>) -> Option<i64> {
    worth_of(topology, pod, &addresses(nics))
}

fn worth_of(topology: &Topology, pod: &Pod, nics: &[PciAddress]) -> Option<i64> {
    let gpus = &pod.gpus;
    if gpus.is_empty() {
        return Some(0);
    }
    let others = gpus.len().min(nics.len());
    assign(topology, pod, nics, 0, &mut vec![0; others])
}

/// The best even assignment: of the NICs to the GPUs, or of the GPUs to the NICs if these are fewer.
fn assign(
    topology: &Topology,
    pod: &Pod,
    nics: &[PciAddress],
    from: usize,
    loads: &mut Vec<usize>,
) -> Option<i64> {
    let gpus = &pod.gpus;
    let by_nic = nics.len() >= gpus.len();
    let ones = if by_nic { nics.len() } else { gpus.len() };
    if from == ones {
        return loads.iter().all(|load| *load >= ones / loads.len()).then_some(0);
    }
    let mut best = None;
    for other in 0..loads.len() {
        if loads[other] == ones.div_ceil(loads.len()) {
            continue;
        }
        let (gpu, nic) = if by_nic { (gpus[other], nics[from]) } else { (gpus[from], nics[other]) };
        if !is_near(topology, pod, gpu, nic) {
            continue;
        }
        loads[other] += 1;
        let rest = assign(topology, pod, nics, from + 1, loads);
        loads[other] -= 1;
        best = best.max(rest.map(|rest| rest + worth(topology, gpu, nic)));
    }
    best
}

fn is_near(topology: &Topology, pod: &Pod, gpu: PciAddress, nic: PciAddress) -> bool {
    pod.within.is_none_or(|level| {
        let mut cells = topology.cells_of_all(level).into_iter();
        cells.any(|cell| cell.gpus.contains(&gpu) && cell.nics.contains(&nic))
    })
}

fn worth(topology: &Topology, gpu: PciAddress, nic: PciAddress) -> i64 {
    match topology.path(gpu, nic) {
        PathKind::Pix | PathKind::Same | PathKind::NvLink(_) | PathKind::Xgmi => 5,
        PathKind::Pxb => 4,
        PathKind::Phb => 3,
        PathKind::Node => 2,
        PathKind::Sys if topology.shares_socket(gpu, nic) => 1,
        PathKind::Sys | PathKind::Unknown => 0,
    }
}
