//! Chooses the NICs of a claim that names places: those nearest to the GPUs that a device plugin has
//! given the pod. A pure function of the claim, the machine and what other claims hold.
//!
//! Places are interchangeable, so the first place of a claim stands for its first NIC by address. The
//! choice is made and recorded in the checkpoint under the lock for all claims of the node.

mod error;
mod gpus;

use crate::facts::pod_resources::PodDevices;
use crate::model::plan::{Plan, PluginGpu};
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use cluster_model::network_config::{LateBindingConfig, NetworkConfig};
use cluster_model::published_device::is_place;
pub use error::LateError;
pub use gpus::{KnownGpus, gpus};
use publication::late::LateNic;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use topology_graph::{Level, NearestRequest, PciAddress, Topology};

/// The NICs that this node binds late, as publication sees them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LateNics(Arc<Mutex<LateState>>);

/// What preparation can choose from.
#[derive(Clone, Debug, Default)]
enum LateState {
    /// Publication has not read the NICs yet.
    #[default]
    Unread,
    /// The node binds its NICs by name.
    Named,
    /// These NICs.
    Late(Arc<Vec<LateNic>>),
}

impl LateNics {
    /// Replaces the NICs.
    pub fn set(&self, nics: Vec<LateNic>) {
        self.replace(LateState::Late(Arc::new(nics)));
    }

    /// Records that the node binds its NICs by name.
    pub fn set_named(&self) {
        self.replace(LateState::Named);
    }

    /// The NICs.
    ///
    /// # Errors
    /// There are none to choose from.
    pub fn get(&self) -> Result<Arc<Vec<LateNic>>, LateError> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            LateState::Unread => Err(LateError::NotRead),
            LateState::Named => Err(LateError::Named),
            LateState::Late(nics) => Ok(Arc::clone(nics)),
        }
    }

    fn replace(&self, choice: LateState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = choice;
    }
}

/// Inputs of the choice besides the claim.
#[derive(Clone, Copy, Debug)]
pub struct LateFacts<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// How device plugins name its GPUs.
    pub known: &'a KnownGpus,
    /// The devices that device plugins have given out.
    pub devices: &'a PodDevices,
    /// The NICs that are bound late.
    pub nics: &'a [LateNic],
    /// The plans of the other claims.
    pub held: &'a [&'a Plan],
}

/// A claim whose places are NICs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The claim.
    pub claim: AllocatedClaim,
    /// The pod's GPUs of device plugins.
    pub gpus: Vec<PluginGpu>,
}

/// Returns true if the claim has places.
pub fn has_places(claim: &AllocatedClaim) -> bool {
    claim.devices.iter().any(|device| is_place(&device.device))
}

/// Chooses the NICs of a claim.
pub fn bind(claim: &AllocatedClaim, facts: &LateFacts<'_>) -> Result<Bound, LateError> {
    let places: Vec<&AllocatedDevice> =
        claim.devices.iter().filter(|device| is_place(&device.device)).collect();
    if claim.pods.len() != 1 {
        return Err(LateError::Pods { found: claim.pods.len() });
    }
    let wanted = wanted(&places)?;
    let gpus = gpus(&facts.devices.own, facts.known)?;
    if let Some(expected) = wanted.gpus.filter(|expected| *expected as usize != gpus.len()) {
        return Err(LateError::Gpus { expected, found: gpus.len() });
    }
    let request = request(&gpus, places.len(), wanted.within, facts);
    if request.nics.len() < request.count {
        return Err(LateError::TooFew { wanted: request.count, free: request.nics.len() });
    }
    let chosen = facts.topology.nearest(&request);
    let chosen = chosen.ok_or_else(|| too_far(&request, facts))?;
    let names: BTreeMap<PciAddress, &str> =
        facts.nics.iter().map(|nic| (nic.address, nic.device.name.as_str())).collect();
    let mut names = chosen.iter().filter_map(|address| names.get(address));
    let mut claim = claim.clone();
    for device in claim.devices.iter_mut().filter(|device| is_place(&device.device)) {
        let Some(nic) = names.next() else { break };
        device.place = Some(std::mem::replace(&mut device.device, (*nic).to_owned()));
    }
    Ok(Bound { claim, gpus })
}

/// What the claim asks for, the same for all of its places.
fn wanted(places: &[&AllocatedDevice]) -> Result<LateBindingConfig, LateError> {
    let mut all = places.iter().map(|place| late_binding(place));
    let first = all.next().flatten().unwrap_or_default();
    if all.any(|other| other.unwrap_or_default() != first) {
        return Err(LateError::Different);
    }
    Ok(first)
}

/// What a place is to have; the plan rejects malformed parameters.
fn late_binding(place: &AllocatedDevice) -> Option<LateBindingConfig> {
    NetworkConfig::parse(place.parameters.as_ref()?).ok()?.late_binding
}

fn request(
    gpus: &[PluginGpu],
    count: usize,
    within: Option<Level>,
    facts: &LateFacts<'_>,
) -> NearestRequest {
    let held = facts.held.iter().flat_map(|plan| &plan.devices);
    let held: BTreeSet<&str> = held.map(|device| device.device.as_str()).collect();
    let free = facts.nics.iter().filter(|nic| nic.is_usable);
    let free = free.filter(|nic| !held.contains(nic.device.name.as_str()));
    let own: BTreeSet<PciAddress> = gpus.iter().map(|gpu| gpu.pci_bus_id).collect();
    // What is unknown is no GPU that another pod can get.
    let taken = gpus::known(&facts.devices.others, facts.known);
    let all = facts.topology.gpus().iter().map(|gpu| gpu.address);
    let rest = all.filter(|gpu| !own.contains(gpu) && !taken.contains(gpu)).collect();
    let free: Vec<PciAddress> = free.map(|nic| nic.address).collect();
    let nics: Vec<_> = facts.topology.one_of_each_port(free.iter().copied()).collect();
    // Preferred nearness takes what there is.
    let nics = if nics.len() < count && within.is_none() { free } else { nics };
    NearestRequest { gpus: own.into_iter().collect(), nics, count, within, rest }
}

/// Says which NICs are free and how far each is.
fn too_far(request: &NearestRequest, facts: &LateFacts<'_>) -> LateError {
    LateError::TooFar {
        wanted: request.count,
        within: request.within.unwrap_or(Level::Numa),
        gpus: request.gpus.iter().map(ToString::to_string).collect(),
        free: request.nics.iter().map(|nic| distance(*nic, &request.gpus, facts)).collect(),
    }
}

/// A NIC with its shortest path to one of the GPUs.
fn distance(nic: PciAddress, gpus: &[PciAddress], facts: &LateFacts<'_>) -> String {
    let named = facts.nics.iter().find(|it| it.address == nic);
    let name = named.map(|it| it.device.name.as_str()).unwrap_or_default();
    match gpus.iter().map(|gpu| (facts.topology.path(*gpu, nic), gpu)).min() {
        Some((path, gpu)) => format!("`{name}` ({path} from GPU {gpu})"),
        None => format!("`{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology_graph::fixture::{machine, plant, with_virtual_functions};
    use topology_graph::{HostRoot, read};

    #[test]
    fn a_pod_gets_one_function_of_each_port() {
        let root = tempfile::tempdir().unwrap();
        plant(machine("dgx-h100").unwrap(), root.path()).unwrap();
        let machine = with_virtual_functions(read(&HostRoot::at(root.path())).unwrap(), 2);
        let (topology, _) = Topology::build(&machine, None);
        let functions = machine.pci.iter().filter(|it| it.physical_function.is_some());
        let functions: Vec<PciAddress> = functions.map(|function| function.address).collect();
        let chosen = topology.one_of_each_port(functions.iter().copied());
        assert_eq!((chosen.count(), functions.len()), (12, 24));
        let physical: Vec<PciAddress> = machine.rdma.iter().filter_map(|it| it.pci).collect();
        let physical: Vec<_> = physical.into_iter().filter(|it| !functions.contains(it)).collect();
        let chosen = topology.one_of_each_port(physical.iter().copied());
        assert_eq!(chosen.count(), physical.len());
    }
}
