//! Converts between the model and its Kubernetes form.

mod shape;
mod value;

use std::collections::BTreeMap;

use super::{
    DeviceIdentity, GpuDirectSpec, LinkSpec, NicSpec, NodeTopologySpec, NumaMemorySpec, ShapeSpec,
    TopologySummary,
};
use crate::build::{Built, Verdicts};
use crate::graph::{Branch, Role};
use crate::identity::Identity;
use crate::{Acs, Gdr, NumaNode, PciAddress, Topology};
use shape::{branches_from, parts_from, shape_spec, vertex_specs};
use value::{link, link_text, optional, place, unexpected, value};

pub use value::SpecError;

impl Topology {
    /// The graph as a Kubernetes object's `spec`.
    pub fn to_spec(&self) -> NodeTopologySpec {
        let shape = shape_spec(&self.graph);
        let named = self.identities.iter().filter(|(_, names)| **names != Identity::default());
        NodeTopologySpec {
            summary: TopologySummary {
                gpus: count(self.gpus().len()),
                nics: count(self.nics().len()),
                numa_nodes: count(shape.numa_nodes.len()),
                anomalies: count(self.anomalies.len()),
            },
            fabric: self.fabric.clone(),
            rdma_namespace_mode: None,
            shape: ShapeSpec { hash: self.hash.to_string(), ..shape },
            identities: named.map(|(address, names)| identity_spec(*address, names)).collect(),
            nics: self.nics().iter().filter_map(|nic| self.nic_spec(nic.address)).collect(),
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
            acs: acs(&spec.nics)?,
            memory: spec.memory.iter().map(|spec| (NumaNode(spec.node), spec.bytes)).collect(),
            nccl_file: None,
            anomalies: spec.anomalies.clone(),
        };
        let (mut topology, errors) = Self::assemble(built, Some(hash));
        if let Some(error) = errors.first() {
            return Err(SpecError::Graph(error.to_string()));
        }
        topology.gdr = verdicts(&spec.nics, &topology)?;
        Ok(topology.on_fabric(spec.fabric.clone()))
    }

    /// `None` if nothing is known about the NIC's connection.
    fn nic_spec(&self, nic: PciAddress) -> Option<NicSpec> {
        let runs = self.nic(nic).and_then(|nic| nic.current_link);
        let mut by_verdict: BTreeMap<Gdr, Vec<u32>> = BTreeMap::new();
        for (number, gpu) in (0..).zip(self.gpus()) {
            if let Some(verdict) = self.gdr.get(&(gpu.address, nic)) {
                by_verdict.entry(*verdict).or_default().push(number);
            }
        }
        let gpu_direct = by_verdict.into_iter();
        let spec = NicSpec {
            at: nic.to_string(),
            link: runs.map(link_text),
            acs: self.acs.get(&nic).map(ToString::to_string),
            gpu_direct: gpu_direct
                .map(|(verdict, gpus)| GpuDirectSpec { verdict: verdict.to_string(), gpus })
                .collect(),
        };
        let says = spec.link.is_some() || spec.acs.is_some() || !spec.gpu_direct.is_empty();
        says.then_some(spec)
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

fn identity_spec(address: PciAddress, identity: &Identity) -> DeviceIdentity {
    let Identity { uuid, model, rdma_device, netdevs, node_guid, sys_image_guid, drm_card, nvme } =
        identity.clone();
    let at = address.to_string();
    DeviceIdentity {
        at,
        uuid,
        model,
        rdma_device,
        netdevs,
        node_guid,
        sys_image_guid,
        drm_card,
        nvme,
    }
}

fn identity_from(spec: &DeviceIdentity) -> Identity {
    let DeviceIdentity {
        at: _,
        uuid,
        model,
        rdma_device,
        netdevs,
        node_guid,
        sys_image_guid,
        drm_card,
        nvme,
    } = spec.clone();
    Identity { uuid, model, rdma_device, netdevs, node_guid, sys_image_guid, drm_card, nvme }
}

fn identities(specs: &[DeviceIdentity]) -> Result<BTreeMap<PciAddress, Identity>, SpecError> {
    let identity =
        |spec: &DeviceIdentity| Ok((value("identities.at", &spec.at)?, identity_from(spec)));
    specs.iter().map(identity).collect()
}

fn acs(specs: &[NicSpec]) -> Result<BTreeMap<PciAddress, Acs>, SpecError> {
    let told = specs.iter().filter_map(|spec| Some((spec, spec.acs.as_ref()?)));
    let acs = |(spec, acs): (&NicSpec, &String)| {
        Ok((value("nics.at", &spec.at)?, value("nics.acs", acs)?))
    };
    told.map(acs).collect()
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

fn verdicts(specs: &[NicSpec], topology: &Topology) -> Result<Verdicts, SpecError> {
    let mut verdicts = Verdicts::new();
    for spec in specs {
        let nic = value("nics.at", &spec.at)?;
        for told in &spec.gpu_direct {
            let verdict = value("nics.gpuDirect.verdict", &told.verdict)?;
            for number in &told.gpus {
                let gpu =
                    usize::try_from(*number).ok().and_then(|index| topology.gpus().get(index));
                let gpu =
                    gpu.ok_or_else(|| unexpected("nics.gpuDirect.gpus", &number.to_string()))?;
                verdicts.insert((gpu.address, nic), verdict);
            }
        }
    }
    Ok(verdicts)
}
