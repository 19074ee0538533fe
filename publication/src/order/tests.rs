use crate::decision::{Decision, decide};
use crate::live;
use crate::machine::Facts;
use crate::node::NodeIdentity;
use crate::slices::{self, Memory};
use cluster_model::names::{DRIVER, attribute};
use dra_allocator::{
    AllocatedState, Claim, Inventory, Limits, MinorVersion, Outcome, Settings, allocate,
};
use k8s_openapi::api::resource::v1::{Device, ResourceClaim};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::NumaNode;

const NODE: &str = "n1";

/// Device names of the NICs of each NUMA node, unordered.
fn cells(devices: &[Device]) -> BTreeMap<i64, BTreeSet<String>> {
    let mut cells: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for device in devices {
        let attributes = device.attributes.as_ref().unwrap();
        if let Some(node) = attributes.get(attribute::NUMA_NODE).and_then(|node| node.int) {
            cells.entry(node).or_default().insert(device.name.clone());
        }
    }
    cells
}

/// What is published for the compute NICs. Those of other roles follow them.
fn compute(facts: &Facts) -> Decision {
    let mut decision = decide(facts);
    decision.devices.retain(|device| {
        let role = device.attributes.as_ref().unwrap().get(attribute::ROLE);
        role.is_some_and(|role| role.string.as_deref() == Some("compute"))
    });
    decision
}

/// Live machines with compute NICs in several cells, and one whose addresses alternate between
/// its NUMA nodes.
fn machines() -> Vec<(&'static str, Decision)> {
    let mut to_and_fro = live::facts("aks-mi300x");
    to_and_fro.cloud = [].into_iter().collect();
    alternate(&mut to_and_fro);
    let live = live::MACHINES.map(|machine| (machine, compute(&live::facts(machine))));
    let all = live.into_iter().chain([("to and fro", compute(&to_and_fro))]);
    all.filter(|(_, decision)| cells(&decision.devices).len() > 1).collect()
}

fn alternate(facts: &mut Facts) {
    let nics = facts.snapshot.pci.iter_mut().filter(|function| function.class >> 16 == 2);
    for (index, function) in nics.enumerate() {
        function.numa_node = Some(NumaNode(u32::from(index % 2 == 1)));
    }
}

/// An inventory with these devices on one node.
fn inventory(devices: &[Device]) -> Inventory {
    let mut inventory = Inventory::new();
    let node =
        NodeIdentity { name: NODE.to_owned(), uid: "n-1".to_owned(), labels: BTreeMap::new() };
    for (index, mut slice) in
        slices::plan(&node, devices, &[], &Memory::default()).create.into_iter().enumerate()
    {
        slice.metadata.name = Some(format!("{index:05x}-{DRIVER}-x"));
        inventory.apply_slice(&slice).unwrap();
    }
    let class = json!({"metadata": {"name": "nic"}, "spec": {}});
    inventory.apply_class(&serde_json::from_value(class).unwrap()).unwrap();
    inventory
}

/// The allocations of pods, one after the other, that each request this many NICs in one
/// cell.
fn allocations(devices: &[Device], count: usize) -> Vec<BTreeSet<String>> {
    let inventory = inventory(devices);
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    let claim = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {
        "requests": [{"name": "nics", "exactly": {
            "deviceClassName": "nic", "allocationMode": "ExactCount", "count": count}}],
        "constraints": [{"matchAttribute": attribute::NUMA_NODE}],
    }}});
    let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
    let claims = [Claim::try_from(&claim).unwrap()];
    let (mut state, mut all) = (AllocatedState::default(), Vec::new());
    loop {
        let limits = Limits::steps(100_000);
        match allocate(&inventory, NODE, &claims, &state, &settings, limits).outcome {
            Outcome::Allocated(allocated) => {
                let results = allocated.into_iter().flat_map(|claim| claim.results);
                let devices: Vec<_> = results.map(|result| result.device).collect();
                all.push(devices.iter().map(|device| device.device.to_string()).collect());
                for device in devices {
                    state.insert(device);
                }
            }
            Outcome::NoFit(_) => return all,
            outcome => panic!("{outcome:?}"),
        }
    }
}

/// Whether no pod broke a cell while another cell was already broken.
fn keeps_whole(cells: &BTreeMap<i64, BTreeSet<String>>, pods: &[BTreeSet<String>]) -> bool {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    pods.iter().all(|pod| {
        taken.extend(pod.iter().cloned());
        let broken =
            |cell: &&BTreeSet<String>| !cell.is_disjoint(&taken) && !cell.is_subset(&taken);
        cells.values().filter(broken).count() <= 1
    })
}

#[test]
fn pods_of_half_a_cell_leave_cells_whole() {
    let machines = machines();
    assert!(machines.len() >= 3, "{}", machines.len());
    for (machine, Decision { devices, .. }) in machines {
        let cells = cells(&devices);
        let half = cells.values().map(BTreeSet::len).min().unwrap().div_ceil(2);
        for count in 1..=half {
            let pods = allocations(&devices, count);
            assert!(pods.len() >= cells.len(), "{machine}: {pods:?}");
            let even = cells.values().all(|cell| cell.len() % count == 0);
            assert!(!even || keeps_whole(&cells, &pods), "{machine}, {count} each: {pods:?}");
        }
    }
}

/// The order matters: sorted by address only, cells would be broken.
#[test]
fn sorting_by_address_breaks_cells() {
    let (_, mut decision) = machines().into_iter().find(|(name, _)| *name == "to and fro").unwrap();
    let cells = cells(&decision.devices);
    assert!(keeps_whole(&cells, &allocations(&decision.devices, 1)));
    decision.devices.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!keeps_whole(&cells, &allocations(&decision.devices, 1)));
}
