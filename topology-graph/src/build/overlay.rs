//! Builds a shape from a description alone: an NCCL topology file without its machine.

use std::collections::BTreeSet;

use super::{Branches, Built, about, links};
use crate::class::{is_gpu, is_network};
use crate::graph::{Branch, NumaPart, Parts, Place, Role, Vertex};
use crate::overlay::{OverlayDevice, OverlaySwitch};
use crate::{Anomaly, AnomalyKind, DeviceIdentity, Overlay, PciAddress};

pub(crate) fn build(overlay: &Overlay) -> Built {
    let mut branches = Branches::new();
    let mut anomalies = Vec::new();
    for (&address, switch) in &overlay.switches {
        let place = Place::Function(address);
        let OverlaySwitch { link: max_link, id, .. } = *switch;
        let evidence = overlay.evidence.clone();
        let vertex = Vertex { id, max_link, evidence, ..Vertex::new(place, Role::Switch) };
        let parent = switch.parent.map(Place::Function);
        branches.insert(place, Branch { vertex, parent, data_path: None });
    }
    for (&address, device) in &overlay.devices {
        match vertex(address, device, overlay) {
            Ok(vertex) => {
                let parent = device.switch.map(Place::Function);
                branches.insert(vertex.place, Branch { vertex, parent, data_path: None });
            }
            Err(anomaly) => anomalies.push(anomaly),
        }
    }
    let mut gpu_links: Vec<_> =
        links::of_overlay(overlay).filter(|link| links::are_gpus(link.gpus, &branches)).collect();
    gpu_links.extend(links::by_model(&branches, &gpu_links, &BTreeSet::new(), false));
    let parts = Parts {
        numa: numa(overlay, &branches),
        sockets: Vec::new(),
        gpu_links,
        branches: branches.into_values().collect(),
    };
    let identities = overlay.devices.iter().filter(|(_, device)| !device.names.is_empty());
    let identities =
        identities.map(|(address, device)| (*address, identity(*address, device))).collect();
    Built { parts, identities, anomalies, ..Built::default() }
}

/// NCCL names a NIC by its RDMA device, or else by its interface. RDMA devices usually have several
/// names of one form (`mlx5_0`, `rdmap79s0`), which no list has; so each name counts as that.
fn identity(address: PciAddress, device: &OverlayDevice) -> DeviceIdentity {
    let (at, rdma_device) = (address.to_string(), device.names.first().cloned());
    DeviceIdentity { at, rdma_device, ..DeviceIdentity::default() }
}

fn vertex(
    address: PciAddress,
    device: &OverlayDevice,
    overlay: &Overlay,
) -> Result<Vertex, Anomaly> {
    let role = match device.class {
        Some(class) if is_gpu(class) => Role::Gpu,
        Some(class) if is_network(class) => Role::Nic,
        _ => {
            let detail = format!("{} does not say whether it is a GPU or a NIC", overlay.evidence);
            return Err(about(address, AnomalyKind::RoleUnknown, detail));
        }
    };
    Ok(Vertex {
        class: device.class,
        id: device.id,
        numa: device.numa,
        max_link: device.link,
        evidence: overlay.evidence.clone(),
        numa_evidence: overlay.evidence.clone(),
        ..Vertex::new(Place::Function(address), role)
    })
}

/// The NUMA nodes of the devices.
fn numa(overlay: &Overlay, branches: &Branches) -> Vec<NumaPart> {
    let nodes: BTreeSet<_> = branches.values().filter_map(|branch| branch.vertex.numa).collect();
    nodes
        .into_iter()
        .map(|node| NumaPart {
            node,
            cpus: overlay.cpus.get(&node).cloned().unwrap_or_default(),
            distances: Vec::new(),
            socket: None,
            evidence: overlay.evidence.clone(),
        })
        .collect()
}
