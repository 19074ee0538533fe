//! The output of `lspci`: the tree of `-tv`, and the descriptions of `-v`, `-vv` or `-vvv`, with or
//! without `-nn` and `-D`. Both may be in one text. What only the names of devices show (classes and
//! vendors in a tree) is taken from the names of the PCI ID database.

mod details;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use topology_graph::class::{PCI_BRIDGE, is_bridge};
use topology_graph::{
    CpuSet, NumaNode, NumaNodeFacts, PciAddress, PciFunction, PcieRoot, Snapshot,
};

use crate::machine::{Functions, PostedError, function, nothing};
use details::Details;

pub(super) fn read(text: &str) -> Result<Snapshot, PostedError> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut functions = Functions::new();
    let mut virtuals = BTreeSet::new();
    let mut are_named = false;
    for tree::Listed { address, root, bridges, name } in tree::functions(&lines)? {
        let mut known = function(address, root, &bridges);
        details::by_name(&name, &mut known);
        are_named |= !name.is_empty();
        virtuals.extend(details::is_virtual(&name).then_some(address));
        if functions.insert(address, known.clone()).is_some_and(|before| before != known) {
            return Err(PostedError::Twice(address));
        }
    }
    let details = details::read(&lines)?;
    if !functions.is_empty() && !are_named && details.is_empty() {
        return Err(PostedError::NoNames);
    }
    let named = details.iter().filter(|(_, details)| details::is_virtual(&details.name));
    virtuals.extend(named.map(|(address, _)| *address));
    let has_tree = !functions.is_empty();
    if !has_tree {
        functions = by_buses(&details);
    }
    for (address, details) in &details {
        if let Some(known) = functions.get_mut(address) {
            details.apply(known);
            // On one NUMA node, devices of unknown place may be near or far.
            known.numa_node = known.numa_node.filter(|_| has_tree || known.root.is_some());
        }
    }
    name_physical_functions(&mut functions, &virtuals);
    // Every function in a tree with something below it is a bridge, whatever its name says.
    let bridges: Vec<PciAddress> =
        functions.values().flat_map(|function| function.bridges.clone()).collect();
    for bridge in bridges {
        if let Some(known) = functions.get_mut(&bridge).filter(|known| !is_bridge(known.class)) {
            known.class = PCI_BRIDGE;
        }
    }
    let mut snapshot = nothing();
    snapshot.numa_nodes = numa_nodes(&functions);
    snapshot.pci = functions.into_values().collect();
    Ok(snapshot)
}

/// Places functions by the paths of `-PP`, or else by the buses of the bridges above them. The root bus is
/// unknown if it may be the bus of a bridge that is not listed.
fn by_buses(details: &BTreeMap<PciAddress, Details>) -> Functions {
    let bridges: BTreeMap<(u32, u8), PciAddress> = details
        .iter()
        .filter_map(|(address, details)| Some(((address.domain(), details.secondary?), *address)))
        .collect();
    let tops = details.iter().filter(|(_, details)| details.is_on_root_bus());
    let roots: BTreeSet<(u32, u8)> =
        tops.map(|(address, _)| (address.domain(), address.bus())).collect();
    details
        .iter()
        .map(|(address, described)| {
            let mut above = Vec::new();
            let mut bus = (address.domain(), address.bus());
            if let [top, ..] = described.path.as_slice() {
                above.clone_from(&described.path);
                let root = PcieRoot::new(top.domain(), top.bus());
                return (*address, function(*address, Some(root), &above));
            }
            while let Some(bridge) = bridges.get(&bus).filter(|bridge| !above.contains(*bridge)) {
                above.push(*bridge);
                bus = (bridge.domain(), bridge.bus());
            }
            above.reverse();
            let is_root = bus.1 == 0 || roots.contains(&bus);
            let root = is_root.then(|| PcieRoot::new(bus.0, bus.1));
            (*address, function(*address, root, &above))
        })
        .collect()
}

/// Virtual functions say what they are but not whose: the first physical function on their bus.
fn name_physical_functions(functions: &mut Functions, virtuals: &BTreeSet<PciAddress>) {
    let physical = functions.values().rev().filter(|known| !virtuals.contains(&known.address));
    let physical: BTreeMap<(u32, u8, u16), PciAddress> =
        physical.map(|function| (bus_of(function), function.address)).collect();
    for function in functions.values_mut().filter(|known| virtuals.contains(&known.address)) {
        function.physical_function = physical.get(&bus_of(function)).copied();
    }
}

/// The bus and the vendor of a function.
fn bus_of(function: &PciFunction) -> (u32, u8, u16) {
    (function.address.domain(), function.address.bus(), function.vendor)
}

/// The nodes that functions name. Their CPUs are not listed.
fn numa_nodes(functions: &Functions) -> Vec<NumaNodeFacts> {
    let nodes = functions.values().filter_map(|function| function.numa_node);
    let nodes: BTreeSet<NumaNode> = nodes.collect();
    nodes
        .into_iter()
        .map(|node| NumaNodeFacts {
            node,
            cpus: CpuSet::default(),
            distances: Vec::new(),
            memory_bytes: None,
        })
        .collect()
}
