//! Describes a claim's device topology to its containers: which NIC belongs to which GPU,
//! and the machine's topology for NCCL, both restricted to the claim's devices. A pure
//! function of the plan, the topology and the slices.

use crate::model::plan::{NearNic, Plan, PlannedDevice, PlannedGpu, Wiring};
use crate::prepare::published::SliceDevices;
use cluster_model::gpu_drivers;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{NcclFileNeed, Pair, PciAddress, PlanRequest, Topology, nccl_xml_of};

/// Determines the topology of the plan's devices.
pub fn wiring(plan: &Plan, driver: &str, topology: &Topology, published: &SliceDevices) -> Wiring {
    let (mut gpus, places) = gpus(plan, topology, published);
    let nics: BTreeMap<PciAddress, &PlannedDevice> = plan
        .devices
        .iter()
        .filter_map(|device| Some((device.pci_bus_id.parse().ok()?, device)))
        .collect();
    let held: Vec<PciAddress> = places.iter().flatten().copied().collect();
    let pairs = pairs(topology, &held, &nics.keys().copied().collect::<Vec<_>>());
    for (gpu, place) in gpus.iter_mut().zip(&places) {
        gpu.nics = near(&pairs, *place, &nics);
    }
    let shown = if gpus.is_empty() { all_gpus(topology) } else { held };
    let devices: BTreeSet<PciAddress> = shown.into_iter().chain(nics.keys().copied()).collect();
    let attributes = plan.devices.iter().map(|device| {
        (device.device.clone(), published.json(driver, &device.pool, &device.device))
    });
    Wiring {
        gpus,
        nccl: nccl_xml_of(topology, &devices),
        nccl_on_request: !NcclFileNeed::of(topology).is_file_given(),
        attributes: attributes.collect(),
        beside: Vec::new(),
    }
}

/// The GPUs that a file for NCCL has if the claim has none: a device plugin may give the pod some, and
/// the driver does not know which. NCCL removes those that its processes do not use
/// (`ncclTopoTrimXml`).
fn all_gpus(topology: &Topology) -> Vec<PciAddress> {
    topology.gpus().iter().map(|gpu| gpu.address).collect()
}

/// The claim's GPUs, and those that a device plugin gave the pod, without their NICs; and their PCI
/// addresses.
fn gpus(
    plan: &Plan,
    topology: &Topology,
    published: &SliceDevices,
) -> (Vec<PlannedGpu>, Vec<Option<PciAddress>>) {
    let gpus = plan.others.iter().filter_map(|other| {
        let key = [other.driver.as_str(), other.pool.as_str(), other.device.as_str()];
        let (address, uuid) = published.place(key, topology);
        let is_gpu = gpu_drivers::by_name(&other.driver).is_some()
            || address.is_some_and(|address| topology.gpu(address).is_some());
        let gpu = PlannedGpu {
            request: other.request.clone(),
            driver: other.driver.clone(),
            device: other.device.clone(),
            pci_bus_id: address.map(|address| address.to_string()),
            uuid,
            nics: Vec::new(),
        };
        is_gpu.then_some((gpu, address))
    });
    let by_plugin = plan.plugin_gpus.iter().map(|gpu| {
        let planned = PlannedGpu {
            request: gpu.resource.clone(),
            driver: gpu.resource.clone(),
            device: gpu.id.clone(),
            pci_bus_id: Some(gpu.pci_bus_id.to_string()),
            uuid: gpu.uuid.clone(),
            nics: Vec::new(),
        };
        (planned, Some(gpu.pci_bus_id))
    });
    gpus.chain(by_plugin).unzip()
}

/// Assigns every NIC to one GPU, equally many to each GPU. If there are fewer NICs than
/// GPUs, each NIC is shared by the GPUs near it.
fn pairs(topology: &Topology, gpus: &[PciAddress], nics: &[PciAddress]) -> Vec<Pair> {
    let per_gpu = nics.len().div_ceil(gpus.len().max(1));
    let shared = nics.len() < gpus.len();
    topology.plan(&PlanRequest { shared, ..PlanRequest::each(gpus, nics, per_gpu) })
}

fn near(
    pairs: &[Pair],
    gpu: Option<PciAddress>,
    nics: &BTreeMap<PciAddress, &PlannedDevice>,
) -> Vec<NearNic> {
    let mut own: Vec<&Pair> = pairs.iter().filter(|pair| Some(pair.gpu) == gpu).collect();
    own.sort_by_key(|pair| (pair.path, pair.nic));
    own.iter()
        .filter_map(|pair| {
            let device = nics.get(&pair.nic)?;
            Some(NearNic {
                device: device.device.clone(),
                rdma_device: device.rdma.as_ref().map(|rdma| rdma.name.clone()),
                path: pair.path.to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
