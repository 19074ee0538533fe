//! Between the model and its Kubernetes form, both ways.

mod shape;
mod value;

use std::collections::BTreeMap;

use super::{
    DeviceIdentity, GpuDirectSpec, NicSpec, NodeTopologySpec, NumaMemorySpec, ShapeSpec,
    TopologySummary,
};
use crate::build::{Built, NicState, NicStates, Verdicts};
use crate::identity::Identity;
use crate::{Gdr, NumaNode, PciAddress, Topology};
use shape::{shape_from, shape_spec, vertex_spec, vertices_from};
use value::{link, link_text, optional, unexpected, value};

pub use value::SpecError;

impl Topology {
    /// The graph as a Kubernetes object's `spec`.
    pub fn to_spec(&self) -> NodeTopologySpec {
        let named = self.identities.iter().filter(|(_, names)| **names != Identity::default());
        NodeTopologySpec {
            summary: TopologySummary {
                gpus: count(self.gpus().len()),
                nics: count(self.nics().len()),
                numa_nodes: count(self.shape.numa.len()),
                anomalies: count(self.anomalies.len()),
            },
            fabric: self.fabric.clone(),
            shape: ShapeSpec { hash: self.hash.to_string(), ..shape_spec(&self.shape) },
            identities: named.map(|(address, names)| identity_spec(*address, names)).collect(),
            nics: self.nics().iter().filter_map(|nic| self.nic_spec(nic.address)).collect(),
            memory: self.memory.iter().map(memory_spec).collect(),
            storage: self.storage.iter().filter_map(vertex_spec).collect(),
            anomalies: self.anomalies.clone(),
        }
    }

    /// The graph that a node's driver has published. Its shape keeps the name that
    /// the driver gave it, since the NICs' attributes carry the same.
    pub fn from_spec(spec: &NodeTopologySpec) -> Result<Self, SpecError> {
        let hash = value("shape.hash", &spec.shape.hash)?;
        let shape = shape_from(&spec.shape)?;
        let known = shape.vertices.iter().map(|vertex| vertex.place).collect();
        let built = Built {
            storage: vertices_from(&spec.storage, &known)?,
            shape,
            identities: identities(&spec.identities)?,
            nic_states: states(&spec.nics)?,
            memory: spec.memory.iter().map(|spec| (NumaNode(spec.node), spec.bytes)).collect(),
            anomalies: spec.anomalies.clone(),
        };
        let (mut topology, errors) = Self::assemble(built, Some(hash));
        if let Some(error) = errors.first() {
            return Err(SpecError::Graph(error.to_string()));
        }
        topology.gdr = verdicts(&spec.nics, &topology)?;
        Ok(topology.on_fabric(spec.fabric.clone()))
    }

    /// Nothing where nothing is known of the NIC's state.
    fn nic_spec(&self, nic: PciAddress) -> Option<NicSpec> {
        let state = self.nic_states.get(&nic).copied().unwrap_or_default();
        let mut by_verdict: BTreeMap<Gdr, Vec<u32>> = BTreeMap::new();
        for (number, gpu) in (0..).zip(self.gpus()) {
            if let Some(verdict) = self.gdr.get(&(gpu.address, nic)) {
                by_verdict.entry(*verdict).or_default().push(number);
            }
        }
        let gpu_direct = by_verdict.into_iter();
        let spec = NicSpec {
            at: nic.to_string(),
            link: state.current_link.map(link_text),
            acs: state.acs.map(|acs| acs.to_string()),
            gpu_direct: gpu_direct
                .map(|(verdict, gpus)| GpuDirectSpec { verdict: verdict.to_string(), gpus })
                .collect(),
        };
        let says = spec.link.is_some() || spec.acs.is_some() || !spec.gpu_direct.is_empty();
        says.then_some(spec)
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

fn states(specs: &[NicSpec]) -> Result<NicStates, SpecError> {
    let state = |spec: &NicSpec| {
        let current_link = optional(spec.link.as_ref(), |text| link("nics.link", text))?;
        let acs = optional(spec.acs.as_ref(), |text| value("nics.acs", text))?;
        Ok((value("nics.at", &spec.at)?, NicState { current_link, acs }))
    };
    specs.iter().map(state).collect()
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
