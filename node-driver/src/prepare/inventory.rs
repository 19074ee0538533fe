//! The NICs of this node, and what preparation needs to know of them besides.

use crate::facts::host;
use crate::facts::ports::KnownPorts;
use crate::facts::reads::MachineError;
use crate::model::plan::CharDevice;
use cluster_model::network_config::VirtualFunctionConfig;
use publication::network::NetworkFacts;
use publication::nic::{Kept, NicState, nics};
use rustix::fs::{FileType, major, minor, stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use topology_graph::{HostRoot, PciAddress, RdmaDevice, Snapshot};

/// Directory of RDMA character devices below `/dev`.
const INFINIBAND: &str = "infiniband";

/// The character device that every RDMA application needs.
const RDMA_CM: &str = "rdma_cm";

/// What preparation plans from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// The NICs, those that the host keeps included.
    pub nics: Vec<NicState>,
    /// The character devices below `/dev/infiniband` that exist, by name.
    pub chars: BTreeMap<String, CharDevice>,
    /// The devices that have been seen with an interface of their own in this boot. If one has none now, a
    /// pod or a network plugin has it.
    pub had_interface: BTreeSet<String>,
    /// The places of virtual functions with configured settings at their physical functions, by device.
    pub functions: BTreeMap<String, FunctionFacts>,
}

/// A virtual function at its physical function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// PCI address of the physical function.
    pub physical: PciAddress,
    /// Its number there.
    pub index: u32,
    /// The physical function's interface and the current settings of this virtual
    /// function, if that interface is in the host's namespace.
    pub seen: Option<(String, VirtualFunctionConfig)>,
}

/// The names of the character devices of an RDMA device.
pub(super) fn char_names(rdma: &RdmaDevice) -> impl Iterator<Item = &String> {
    rdma.uverbs.iter().chain(&rdma.umad).chain(&rdma.issm)
}

impl Inventory {
    /// Reads the machine; nothing is known of its network.
    pub fn read(host: &HostRoot, ports: &KnownPorts) -> Result<Self, MachineError> {
        Ok(Self::new(&host::snapshot(host, ports)?, &NetworkFacts::default(), host))
    }

    /// The NICs of a machine, with their existing character devices.
    pub fn new(snapshot: &Snapshot, network: &NetworkFacts, host: &HostRoot) -> Self {
        let dev = host.dev().join(INFINIBAND);
        let mut nics = nics(snapshot, network);
        // What a pod has is known for the sake of the interface below it.
        nics.retain(|nic| nic.interface.as_ref().is_none_or(|interface| interface.index != 0));
        keep_links(&mut nics, network);
        let rdma = nics.iter().filter_map(|nic| nic.rdma.as_ref());
        let names = rdma.flat_map(char_names).map(String::as_str).chain([RDMA_CM]);
        let chars = names.filter_map(|name| Some((name.to_owned(), char_device(&dev, name)?)));
        Self { chars: chars.collect(), nics, ..Self::default() }
    }

    /// The NIC that is this device.
    pub fn nic(&self, device: &str) -> Option<&NicState> {
        self.devices().find(|nic| nic.name == device)
    }

    /// The NICs of which a pod can be given something.
    pub fn devices(&self) -> impl Iterator<Item = &NicState> {
        self.nics.iter().filter(|nic| nic.can_be_prepared())
    }

    /// `/dev/infiniband/rdma_cm`.
    pub fn rdma_cm(&self) -> Option<&CharDevice> {
        self.chars.get(RDMA_CM)
    }

    /// The MTU of its physical function's interface, for a virtual function.
    pub fn physical_mtu(&self, nic: &NicState) -> Option<u32> {
        let physical = nic.physical_function()?;
        let physical = self.nics.iter().find(|other| other.address() == Some(physical))?;
        physical.interface.as_ref()?.mtu
    }

    /// Adds, for each of these devices that is a virtual function, its place at its
    /// physical function. `settings` reads its current settings, by interface and number.
    pub fn find_functions<E>(
        &mut self,
        devices: &[&str],
        host: &HostRoot,
        settings: impl Fn(&str, u32) -> Result<Option<VirtualFunctionConfig>, E>,
    ) -> Result<(), E> {
        for name in devices {
            let Some(nic) = self.nic(name) else { continue };
            let Some((address, physical)) = nic.address().zip(nic.physical_function()) else {
                continue;
            };
            let Some(index) = number_of(address, physical, host) else { continue };
            let of_physical = self.nics.iter().find(|other| other.address() == Some(physical));
            let netdev = of_physical.and_then(|nic| nic.netdev.as_ref());
            let seen =
                netdev.map(|it| Ok(settings(&it.name, index)?.map(|now| (it.name.clone(), now))));
            let seen = seen.transpose()?.flatten();
            self.functions.insert((*name).to_owned(), FunctionFacts { physical, index, seen });
        }
        Ok(())
    }
}

/// Keeps NICs whose link the host needs, also where the link is of a kind that functions do not have: it is
/// what would be moved.
fn keep_links(nics: &mut [NicState], network: &NetworkFacts) {
    let withheld = network.withheld();
    for nic in nics.iter_mut().filter(|nic| nic.kept.is_none() && nic.interface.is_none()) {
        let link = nic.link_name().and_then(|name| network.interface(name));
        let reason = link.and_then(|link| Some((link, withheld.get(&link.index)?)));
        nic.kept = reason.map(|(link, reason)| Kept {
            reason: reason.clone(),
            interface: Some(link.name.clone()),
        });
    }
}

/// NVIDIA's vendor ID, and the device IDs of its virtual functions: ConnectX-2 and -3, Connect-IB,
/// `ConnectX`-4 to -8, `BlueField` (`mlx4_pci_table` and `mlx5_core_pci_table`).
const NVIDIA: u16 = 0x15b3;
const VIRTUAL_FUNCTIONS: [u16; 10] =
    [0x1002, 0x1004, 0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3];

/// Whether a NIC is a virtual function, also in a virtual machine, which sees no physical function.
pub(super) fn is_virtual_function(nic: &NicState) -> bool {
    nic.function.as_ref().is_some_and(|function| {
        let is_known = function.vendor == NVIDIA && VIRTUAL_FUNCTIONS.contains(&function.device);
        function.physical_function.is_some() || is_known
    })
}

/// The number of a virtual function, from the links `virtfn<N>` of its physical function
/// (`Documentation/PCI/pci-iov-howto.rst`).
fn number_of(function: PciAddress, physical: PciAddress, host: &HostRoot) -> Option<u32> {
    let folder = host.sys().join("bus/pci/devices").join(physical.to_string());
    let name = function.to_string();
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.strip_prefix("virtfn")?.parse().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        (target.file_name()?.to_str()? == name).then_some(number)
    })
}

/// A character device in this directory; `None` if it does not exist.
pub(super) fn char_device(directory: &Path, name: &str) -> Option<CharDevice> {
    let status = stat(directory.join(name)).ok()?;
    let is_char = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    let numbers = (major(status.st_rdev), minor(status.st_rdev));
    is_char.then(|| CharDevice { name: name.to_owned(), major: numbers.0, minor: numbers.1 })
}

#[cfg(test)]
mod tests;
