//! Divides the devices of a pod among NUMA nodes where none of them has enough, so that as few paths
//! as possible lead between NUMA nodes.
//!
//! A division says how many GPUs and how many NICs of each NUMA node the pod gets. Its number of near
//! paths is the same on every machine, so a claim tries divisions with most near paths first, and the
//! first that is possible on a machine is the best one there.

use super::attributes::nics_are;
use super::form::{Across, CellWay, Form, WAYS_MAX};
use super::ways::{CellWays, MachineCells};
use crate::demand::Demand;
use crate::fleet::Fleet;
use cluster_model::machines::Machine;
use cluster_model::published_device::PublishedDevice as _;
use dra_allocator::Device;
use std::cmp::Reverse;
use topology_graph::{Cell, Level};

/// The most NUMA nodes among which devices are divided: the number of divisions grows too fast.
const NUMA_NODES_MAX: usize = 4;

/// The numbers of GPUs and NICs of each NUMA node.
type Division = Vec<(u32, u32)>;

/// The numbers of GPUs and NICs of a machine that pass the filter, of each NUMA node. The functions of
/// a port are one NIC.
pub(crate) fn by_numa(machine: &Machine<'_>, passes: impl Fn(&Device) -> bool) -> Division {
    let cells = machine.devices.cells(Level::Numa).into_iter();
    cells.map(|cell| counted(&cell, machine, &passes)).collect()
}

fn counted(cell: &Cell, machine: &Machine<'_>, passes: impl Fn(&Device) -> bool) -> (u32, u32) {
    let devices = &machine.devices;
    let gpus = cell.gpus.iter().filter(|gpu| passes(devices.gpus[*gpu])).count();
    let nics = cell.nics.iter().copied().filter(|nic| passes(devices.nics[nic]));
    let nics = devices.topology.one_of_each_port(nics).count();
    (u32::try_from(gpus).unwrap_or(u32::MAX), u32::try_from(nics).unwrap_or(u32::MAX))
}

impl Fleet<'_, '_> {
    /// The most near paths that the demand can have on a machine while nothing is in use. `None` if this
    /// is not known.
    pub(crate) fn most_near_paths(self, machine: &Machine<'_>) -> Option<u32> {
        let there = by_numa(machine, |device| device.trouble().is_none());
        let demand = self.demand();
        best(demand, &there).map(|division| demand.near_paths(&division))
    }
}

/// A division of all devices for each of these machines.
pub(crate) fn of_all(fleet: Fleet<'_, '_>, form: &Form, machines: &[&Machine<'_>]) -> Vec<Across> {
    let demand = fleet.demand();
    let numa_nodes = numa_nodes(fleet, machines);
    let mut divisions: Vec<Division> = Vec::new();
    for machine in machines {
        let there = there(machine, &numa_nodes);
        let Some(best) = best(demand, &there) else { continue };
        let most = demand.near_paths(&best);
        let mut as_good = divisions.iter().filter(|known| demand.near_paths(known) == most);
        if !as_good.any(|known| is_possible(known, &there)) {
            divisions.push(best);
        }
    }
    written(demand, divisions, &numa_nodes, form)
}

/// All divisions of a block that leave some of its paths near.
pub(crate) fn of_blocks(
    fleet: Fleet<'_, '_>,
    form: &Form,
    machines: &[&Machine<'_>],
) -> Vec<Across> {
    let Demand { gpus, nics, .. } = *fleet.demand();
    let block = Demand::new(1, gpus, nics, Vec::new());
    let numa_nodes = numa_nodes(fleet, machines);
    let mut divisions =
        divisions((gpus, &vec![gpus; numa_nodes.len()]), (nics, &vec![nics; numa_nodes.len()]));
    divisions.retain(|division| (1..block.paths()).contains(&block.near_paths(division)));
    written(&block, divisions, &numa_nodes, form)
}

/// The NUMA nodes of these machines, as cells that the same claim can name on all of them.
fn numa_nodes(fleet: Fleet<'_, '_>, machines: &[&Machine<'_>]) -> Vec<CellWay> {
    let mut ways = CellWays::default();
    for machine in machines.iter().filter(|machine| nics_are(machine, fleet)) {
        let mut cells = machine.devices.cells(Level::Numa);
        cells.retain(|cell| !cell.gpus.is_empty() || !cell.nics.is_empty());
        let all = machine.devices.topology.cells_of_all(Level::Numa);
        ways.add(&MachineCells::new(machine, all), &cells, NUMA_NODES_MAX);
    }
    ways.into_ways().collect()
}

/// The devices of a machine that a pod can get now of each of these NUMA nodes.
fn there(machine: &Machine<'_>, numa_nodes: &[CellWay]) -> Division {
    let cells = machine.devices.cells(Level::Numa);
    let of_way = numa_nodes.iter().map(|way| {
        let (gpus, nics) = way.on(machine);
        let cell = cells.iter().find(|cell| {
            cell.gpus.iter().any(|gpu| gpus.contains(gpu))
                || cell.nics.iter().any(|nic| nics.contains(nic))
        });
        cell.map_or((0, 0), |cell| counted(cell, machine, |it| it.trouble().is_none()))
    });
    of_way.collect()
}

/// The division with most near paths that is possible on a machine.
fn best(demand: &Demand, there: &[(u32, u32)]) -> Option<Division> {
    let (gpus, nics): (Vec<u32>, Vec<u32>) = there.iter().copied().unzip();
    let possible = divisions((demand.all_gpus(), &gpus), (demand.all_nics(), &nics));
    possible.into_iter().min_by_key(|division| Reverse(demand.near_paths(division)))
}

/// Every division of a number of GPUs and of NICs among NUMA nodes with so many of them; none among too
/// many NUMA nodes.
fn divisions((gpus, of_gpus): (u32, &[u32]), (nics, of_nics): (u32, &[u32])) -> Vec<Division> {
    if of_gpus.len() > NUMA_NODES_MAX {
        return Vec::new();
    }
    let nics = spreads(nics, of_nics);
    let gpus = spreads(gpus, of_gpus);
    let all = gpus.iter().flat_map(|gpus| nics.iter().map(move |nics| (gpus, nics)));
    all.map(|(gpus, nics)| gpus.iter().copied().zip(nics.iter().copied()).collect()).collect()
}

fn is_possible(division: &[(u32, u32)], there: &[(u32, u32)]) -> bool {
    division.iter().zip(there).all(|(own, there)| own.0 <= there.0 && own.1 <= there.1)
}

/// Every way to spread a number of devices over NUMA nodes with so many.
fn spreads(devices: u32, of_numa_nodes: &[u32]) -> Vec<Vec<u32>> {
    match of_numa_nodes {
        [only] if devices <= *only => vec![vec![devices]],
        [] | [_] => Vec::new(),
        [most, others @ ..] => (0..=devices.min(*most))
            .rev()
            .flat_map(|first| {
                let others = spreads(devices - first, others).into_iter();
                others.map(move |others| [vec![first], others].concat())
            })
            .collect(),
    }
}

/// The divisions as ways, those with most near paths first, as far as a claim has room.
fn written(
    demand: &Demand,
    mut divisions: Vec<Division>,
    numa_nodes: &[CellWay],
    form: &Form,
) -> Vec<Across> {
    divisions.sort_by_key(|division| Reverse(demand.near_paths(division)));
    divisions.truncate(WAYS_MAX.saturating_sub(form.ways().count()));
    let (gpus, nics) = (most_parts(&divisions, |own| own.0), most_parts(&divisions, |own| own.1));
    let across = divisions.iter().map(|division| Across {
        gpus: in_parts(division.iter().map(|own| own.0), numa_nodes, gpus),
        nics: in_parts(division.iter().map(|own| own.1), numa_nodes, nics),
    });
    across.collect()
}

/// The most NUMA nodes from which a division takes devices of a kind.
fn most_parts(divisions: &[Division], count: fn(&(u32, u32)) -> u32) -> usize {
    let parts = divisions.iter().map(|it| it.iter().filter(|own| count(own) > 0).count());
    parts.max().unwrap_or_default()
}

/// Devices of NUMA nodes in this number of parts, each of at least one device.
fn in_parts(
    counts: impl Iterator<Item = u32>,
    numa_nodes: &[CellWay],
    number: usize,
) -> Vec<(CellWay, u32)> {
    let own = numa_nodes.iter().cloned().zip(counts).filter(|(_, count)| *count > 0);
    let mut parts: Vec<(CellWay, u32)> = own.collect();
    while parts.len() < number {
        let Some(large) = parts.iter_mut().find(|(_, count)| *count > 1) else { break };
        large.1 -= 1;
        let one = (large.0.clone(), 1);
        parts.push(one);
    }
    parts
}
