//! Remembers what NICs were before pods got them. The host cannot see an interface in a
//! pod's namespace nor, in the RDMA subsystem's exclusive mode, an RDMA device in one.
//! What is published about the NIC, and about the topology, stays as it was when the
//! claim was prepared.
//!
//! Pure. The value outlives a restart of the driver, but not a reboot, after which no pod
//! has any device.

use k8s_openapi::api::resource::v1::Device;
use publication::decision::Facts;
use publication::held::{Held, Holding};
use publication::network::{Interface, NetworkFacts};
use publication::nic::{device_name, interface_device_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{DeviceIdentity, Netdev, PciAddress, RdmaDevice, Snapshot};

/// The file that records NICs as they were before pods got them.
pub(crate) const SEEN: &str = "nics.json";
/// The format version of that file.
pub(crate) const SEEN_VERSION: u32 = 1;

/// The NICs as last seen in the host's namespace, by device name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    nics: BTreeMap<String, SeenNic>,
    /// The interfaces of functions, by PCI address.
    #[serde(default)]
    interfaces: BTreeMap<String, Vec<String>>,
}

/// One NIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenNic {
    /// What was published for it.
    device: Device,
    interface: Option<Interface>,
    /// Name of the interface below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lower: Option<String>,
    netdev: Option<Netdev>,
    rdma: Option<RdmaDevice>,
}

impl Seen {
    /// Records what is published for the NICs that the host has now. Keeps what is known
    /// about NICs that pods have; forgets NICs that neither the host nor a pod has.
    pub fn remember(&mut self, devices: &[Device], facts: &Facts, held: &Held) {
        let of_host = devices.iter().filter(|device| !held.contains_key(&device.name));
        let nics: Vec<_> = of_host.map(|device| SeenNic::new(device, facts)).collect();
        self.nics.retain(|name, _| held.contains_key(name));
        self.nics.extend(nics.into_iter().map(|nic| (nic.device.name.clone(), nic)));
    }

    /// Whether a device was published when the machine was last looked at.
    pub fn has(&self, device: &str) -> bool {
        self.nics.contains_key(device)
    }

    /// Adds what pods have to the facts.
    pub fn complete(&self, facts: &mut Facts, held: &Held) {
        for (name, holding) in held {
            let Some(nic) = self.nics.get(name) else { continue };
            let function = function(&facts.snapshot, name);
            if function.is_some() || !is_function(name) {
                nic.complete(facts, function, *holding);
            }
        }
    }

    /// Names the interfaces of NICs that have none in the host's namespace any more, and remembers those of
    /// the others. Other programs give NICs to pods too, and drivers publish NICs by the names of
    /// their interfaces.
    pub fn name_interfaces(&mut self, identities: &mut [DeviceIdentity]) {
        let on_host: BTreeSet<String> =
            identities.iter().flat_map(|device| device.netdevs.iter().cloned()).collect();
        let known = std::mem::take(&mut self.interfaces);
        for device in identities {
            let names = known.get(&device.at).filter(|_| device.netdevs.is_empty());
            if let Some(names) = names.filter(|names| names.iter().all(|it| !on_host.contains(it)))
            {
                device.netdevs.clone_from(names);
            }
            if !device.netdevs.is_empty() {
                self.interfaces.insert(device.at.clone(), device.netdevs.clone());
            }
        }
    }

    /// Functions that pods have but the machine no longer has, as they were published.
    pub fn gone(&self, snapshot: &Snapshot, held: &Held) -> Vec<Device> {
        let present: BTreeSet<_> =
            snapshot.pci.iter().map(|function| device_name(function.address)).collect();
        self.nics
            .values()
            .filter(|nic| {
                held.contains_key(&nic.device.name)
                    && is_function(&nic.device.name)
                    && !present.contains(&nic.device.name)
            })
            .map(|nic| nic.device.clone())
            .collect()
    }
}

impl SeenNic {
    fn new(device: &Device, facts: &Facts) -> Self {
        let Facts { snapshot, network, .. } = facts;
        let address = function(snapshot, &device.name);
        let netdev = address.and_then(|address| snapshot.netdev(address));
        let interface = match (address, netdev) {
            (Some(_), netdev) => netdev.and_then(|netdev| network.interface(&netdev.name)),
            (None, _) => virtual_interface(network, &device.name),
        };
        let lower = interface.and_then(|it| network.lower_of(it)).map(|it| it.name.clone());
        Self {
            device: device.clone(),
            lower,
            interface: interface.cloned(),
            netdev: netdev.cloned(),
            rdma: address.and_then(|address| snapshot.rdma_device(address)).cloned(),
        }
    }

    fn complete(&self, facts: &mut Facts, function: Option<PciAddress>, holding: Holding) {
        let Facts { snapshot, network, .. } = facts;
        if let Some(rdma) = &self.rdma
            && holding.rdma
            && !snapshot.rdma.iter().any(|there| there.pci == rdma.pci || there.name == rdma.name)
        {
            snapshot.rdma.push(rdma.clone());
            snapshot.rdma.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if holding.interface {
            self.complete_interface(snapshot, network, function);
        }
    }

    /// Restores the interface as it was before, even while the host still has it or has
    /// it again: moving it into the pod and back changes it, and that must not be
    /// published.
    fn complete_interface(
        &self,
        snapshot: &mut Snapshot,
        network: &mut NetworkFacts,
        function: Option<PciAddress>,
    ) {
        let Some(before) = &self.interface else { return };
        let is_own = |netdev: &Netdev| function.is_some() && netdev.pci == function;
        let own: Vec<String> = match function {
            Some(_) => snapshot.netdevs.iter().filter(|it| is_own(it)).map(name_of).collect(),
            None => vec![before.name.clone()],
        };
        let there = network.interfaces.iter().find(|interface| own.contains(&interface.name));
        let (index, master) = there.map_or((0, None), |there| (there.index, there.master));
        let is_taken = network
            .interfaces
            .iter()
            .any(|other| other.name == before.name && !own.contains(&other.name));
        if is_taken {
            return;
        }
        network.interfaces.retain(|interface| !own.contains(&interface.name));
        // Indices change; the interface of that index may be another one now.
        let lower = self.lower.as_ref().and_then(|name| network.interface(name));
        let lower = lower.map(|lower| lower.index);
        network.interfaces.push(Interface { index, master, lower, ..before.clone() });
        network.in_pods.insert(before.name.clone());
        network.interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(netdev) = &self.netdev {
            snapshot.netdevs.retain(|other| !is_own(other) && other.name != netdev.name);
            snapshot.netdevs.push(netdev.clone());
            snapshot.netdevs.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
}

/// Whether a device's name is that of a PCI function.
fn is_function(device: &str) -> bool {
    device.starts_with("pci-")
}

fn name_of(netdev: &Netdev) -> String {
    netdev.name.clone()
}

fn function(snapshot: &Snapshot, device: &str) -> Option<PciAddress> {
    let mut addresses = snapshot.pci.iter().map(|function| function.address);
    addresses.find(|address| device_name(*address) == device)
}

fn virtual_interface<'a>(network: &'a NetworkFacts, device: &str) -> Option<&'a Interface> {
    network.interfaces.iter().find(|interface| interface_device_name(&interface.name) == device)
}

#[cfg(test)]
mod tests;
