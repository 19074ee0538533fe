//! Allocated devices, located by the nodes' graphs: the NUMA node of each device, the free devices,
//! and whether a request would find room.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{Api, Client, ResourceExt, api::ListParams};
use topology_graph::{NodeTopology, NumaNode, PciAddress, Topology};

/// A device of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Its driver.
    pub driver: String,
    /// Its pool, which is named like the node.
    pub node: String,
    /// Its name in the pool.
    pub name: String,
}

/// The location of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The node.
    pub node: String,
    /// The NUMA node.
    pub numa: u32,
}

/// The devices of the cluster with their locations.
#[derive(Debug)]
pub struct Places(BTreeMap<Device, Cell>);

impl Places {
    /// Reads ResourceSlices and NodeTopologies.
    pub async fn read(client: Client) -> anyhow::Result<Self> {
        let all = ListParams::default();
        let mut numa: BTreeMap<(String, PciAddress), NumaNode> = BTreeMap::new();
        for object in Api::<NodeTopology>::all(client.clone()).list(&all).await? {
            let topology = Topology::from_spec(&object.spec)?;
            let gpus = topology.gpus().iter().map(|gpu| (gpu.address, gpu.numa));
            let nics = topology.nics().iter().map(|nic| (nic.address, nic.numa));
            for (address, node) in gpus.chain(nics) {
                if let Some(node) = node {
                    numa.insert((object.name_any(), address), node);
                }
            }
        }
        let mut places = BTreeMap::new();
        for slice in Api::<ResourceSlice>::all(client).list(&all).await? {
            let node = slice.spec.pool.name.clone();
            for device in slice.spec.devices.into_iter().flatten() {
                let attributes = device.attributes.unwrap_or_default();
                let address = attributes.get("resource.kubernetes.io/pciBusID");
                let address = address.and_then(|it| it.string.as_deref()?.parse().ok());
                let found = address.and_then(|address| numa.get(&(node.clone(), address)));
                let numa = found.with_context(|| format!("`{}` of {node}", device.name))?.0;
                let driver = slice.spec.driver.clone();
                let device = Device { driver, node: node.clone(), name: device.name };
                places.insert(device, Cell { node: node.clone(), numa });
            }
        }
        Ok(Self(places))
    }

    /// The location of a device.
    pub fn cell(&self, device: &Device) -> Option<&Cell> {
        self.0.get(device)
    }

    /// Returns true if some NUMA node has this many free devices of each driver.
    pub fn have_room(&self, taken: &BTreeSet<Device>, wanted: &[(&str, usize)]) -> bool {
        let mut free: BTreeMap<(&Cell, &str), usize> = BTreeMap::new();
        for (device, cell) in self.0.iter().filter(|(device, _)| !taken.contains(device)) {
            *free.entry((cell, &device.driver)).or_default() += 1;
        }
        let cells: BTreeSet<&Cell> = self.0.values().collect();
        let has = |cell: &Cell, (driver, count): &(&str, usize)| {
            free.get(&(cell, *driver)).is_some_and(|free| free >= count)
        };
        cells.into_iter().any(|cell| wanted.iter().all(|one| has(cell, one)))
    }
}

/// The devices that each allocated claim of a namespace holds, by the pod that the claim was
/// created for.
pub async fn allocations(
    client: Client,
    namespace: &str,
) -> anyhow::Result<Vec<(String, Vec<Device>)>> {
    let claims: Api<ResourceClaim> = Api::namespaced(client, namespace);
    let mut all = Vec::new();
    for claim in claims.list(&ListParams::default()).await? {
        let pod = claim.owner_references().first().map(|owner| owner.name.clone());
        let allocation = claim.status.and_then(|status| status.allocation);
        let results = allocation.and_then(|allocation| allocation.devices?.results);
        let devices: Vec<_> = results
            .into_iter()
            .flatten()
            .map(|result| Device { driver: result.driver, node: result.pool, name: result.device })
            .collect();
        if !devices.is_empty() {
            all.push((pod.unwrap_or_default(), devices));
        }
    }
    Ok(all)
}

/// All held devices, or the first one that two pods hold.
pub fn disjoint(allocations: &[(String, Vec<Device>)]) -> Result<BTreeSet<Device>, Device> {
    let mut taken = BTreeSet::new();
    for device in allocations.iter().flat_map(|(_, devices)| devices) {
        if !taken.insert(device.clone()) {
            return Err(device.clone());
        }
    }
    Ok(taken)
}
