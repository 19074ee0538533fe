//! A description alone as a shape: what an NCCL topology file says, with no
//! machine beside it.

use std::collections::BTreeSet;

use super::{Built, Vertices, about, links};
use crate::class::{is_gpu, is_network};
use crate::overlay::OverlayDevice;
use crate::shape::{NumaVertex, Place, Role, Shape, Vertex};
use crate::{Anomaly, AnomalyKind, Overlay, PciAddress};

pub(crate) fn build(overlay: &Overlay) -> Built {
    let mut vertices = Vertices::new();
    let mut anomalies = Vec::new();
    for (&address, switch) in &overlay.switches {
        let place = Place::Function(address);
        let parent = switch.parent.map(Place::Function);
        let evidence = overlay.evidence.clone();
        let max_link = switch.link;
        let vertex = Vertex { parent, max_link, evidence, ..Vertex::new(place, Role::Switch) };
        vertices.insert(place, vertex);
    }
    for (&address, device) in &overlay.devices {
        match vertex(address, device, overlay) {
            Ok(vertex) => drop(vertices.insert(vertex.place, vertex)),
            Err(anomaly) => anomalies.push(anomaly),
        }
    }
    let shape = Shape {
        numa: numa(overlay, &vertices),
        sockets: Vec::new(),
        gpu_links: links::nvlinks(overlay)
            .filter(|link| links::are_gpus(link.gpus, &vertices))
            .collect(),
        vertices: vertices.into_values().collect(),
    };
    Built { shape, anomalies, ..Built::default() }
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
        parent: device.switch.map(Place::Function),
        class: device.class,
        id: device.id,
        numa: device.numa,
        max_link: device.link,
        evidence: overlay.evidence.clone(),
        numa_evidence: overlay.evidence.clone(),
        ..Vertex::new(Place::Function(address), role)
    })
}

/// The nodes that devices are on.
fn numa(overlay: &Overlay, vertices: &Vertices) -> Vec<NumaVertex> {
    let nodes: BTreeSet<_> = vertices.values().filter_map(|vertex| vertex.numa).collect();
    let vertex = |node| NumaVertex {
        node,
        cpus: overlay.cpus.get(&node).cloned().unwrap_or_default(),
        distances: Vec::new(),
        socket: None,
        evidence: overlay.evidence.clone(),
    };
    nodes.into_iter().map(vertex).collect()
}
