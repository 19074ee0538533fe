//! Converts between the model and its Kubernetes form.

mod derived;
mod nics;
mod shape;
mod value;

use std::collections::BTreeMap;

use super::{LinkSpec, NodeTopologySpec, NumaMemorySpec, ShapeSpec, TopologySummary};
use crate::build::Built;
use crate::graph::{Branch, Role};
use crate::{DeviceIdentity, NumaNode, PciAddress, Topology};
use shape::{branches_from, parts_from, shape_spec, vertex_specs};
use value::{link, link_text, optional, place, value};

pub use value::SpecError;

impl Topology {
    /// The graph as a Kubernetes object's `spec`.
    pub fn to_spec(&self) -> NodeTopologySpec {
        let shape = shape_spec(&self.graph);
        NodeTopologySpec {
            summary: TopologySummary {
                gpus: count(self.gpus().len()),
                nics: count(self.nics().len()),
                numa_nodes: count(shape.numa_nodes.len()),
                anomalies: count(self.anomalies.len()),
            },
            fabric: self.fabric.clone(),
            rdma_namespace_mode: None,
            locked_memory: None,
            topology_manager_policy: None,
            shape: ShapeSpec { hash: self.hash.to_string(), ..shape },
            identities: self.identities.values().filter(|it| it.is_named()).cloned().collect(),
            nics: self.nics().iter().map(|nic| nics::spec(nic, self)).collect(),
            pairs: derived::pairs(self),
            cells: derived::cells(self),
            paths: derived::paths(self),
            links: self.link_specs(),
            memory: self.memory.iter().map(memory_spec).collect(),
            storage: vertex_specs(&self.graph, false),
            anomalies: self.anomalies.clone(),
        }
    }

    /// The graph that a node's driver has published. It keeps the driver's hash of the shape, since
    /// the NICs' attributes contain it too.
    pub fn from_spec(spec: &NodeTopologySpec) -> Result<Self, SpecError> {
        let hash = value("shape.hash", &spec.shape.hash)?;
        let mut parts = parts_from(&spec.shape)?;
        parts.branches = branches_from(spec.shape.vertices.iter().chain(&spec.storage))?;
        running(spec, &mut parts.branches)?;
        let built = Built {
            parts,
            identities: identities(&spec.identities)?,
            nics: nics::facts(&spec.nics)?,
            acs: nics::acs(&spec.nics)?,
            memory: spec.memory.iter().map(|spec| (NumaNode(spec.node), spec.bytes)).collect(),
            nccl_file: None,
            anomalies: spec.anomalies.clone(),
        };
        let (mut topology, errors) = Self::assemble(built, Some(hash));
        if let Some(error) = errors.first() {
            return Err(SpecError::Graph(error.to_string()));
        }
        topology.gdr = nics::verdicts(&spec.nics, &topology)?;
        Ok(topology.on_fabric(spec.fabric.clone()))
    }

    /// The current links of all vertices except NICs, whose links are in `nics`.
    fn link_specs(&self) -> Vec<LinkSpec> {
        let others = self.graph.vertices().filter(|vertex| vertex.role != Role::Nic);
        let mut links: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for vertex in others {
            if let Some(link) = vertex.current_link {
                links.entry(link_text(link)).or_default().push(vertex.place.to_string());
            }
        }
        links.into_iter().map(|(link, at)| LinkSpec { link, at }).collect()
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn memory_spec((node, bytes): (&NumaNode, &u64)) -> NumaMemorySpec {
    NumaMemorySpec { node: node.0, bytes: *bytes }
}

fn identities(specs: &[DeviceIdentity]) -> Result<BTreeMap<PciAddress, DeviceIdentity>, SpecError> {
    specs.iter().map(|spec| Ok((value("identities.at", &spec.at)?, spec.clone()))).collect()
}

/// Sets the current links above the branches.
fn running(spec: &NodeTopologySpec, branches: &mut [Branch]) -> Result<(), SpecError> {
    let mut links = BTreeMap::new();
    for nic in &spec.nics {
        let at = place("nics.at", &nic.at)?;
        links.insert(at, optional(nic.link.as_ref(), |text| link("nics.link", text))?);
    }
    for alike in &spec.links {
        let runs = link("links.link", &alike.link)?;
        for at in &alike.at {
            links.insert(place("links.at", at)?, Some(runs));
        }
    }
    for branch in branches {
        branch.vertex.current_link = links.get(&branch.place()).copied().flatten();
    }
    Ok(())
}
