//! The devices of this node as preparation needs them: character devices, RDMA device and
//! interface of each, by the device's name in the slice.

use crate::facts::host;
use crate::facts::ports::KnownPorts;
use crate::facts::reads::MachineError;
use crate::model::plan::CharDevice;
use cluster_model::network_config::VirtualFunctionConfig;
use publication::lag::lags;
use publication::network::NetworkFacts;
use publication::nic::{candidates, device_name, virtual_interfaces};
use rustix::fs::{FileType, major, minor, stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use topology_graph::{
    HostRoot, LinkLayer, PciAddress, PciFunction, PortState, RdmaDevice, RdmaPort, Snapshot,
};

/// Directory of RDMA character devices below `/dev`.
const INFINIBAND: &str = "infiniband";

/// The devices by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// By device name in the slice.
    pub devices: BTreeMap<String, NicFacts>,
    /// `/dev/infiniband/rdma_cm`, which every RDMA application needs as well.
    pub rdma_cm: Option<CharDevice>,
}

/// One NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicFacts {
    /// Its PCI address; none for a virtual interface.
    pub address: Option<PciAddress>,
    /// Its RDMA device.
    pub rdma: Option<RdmaFacts>,
    /// Its network interface, if it is in the host's namespace.
    pub netdev: Option<String>,
    /// Whether it has been seen with an interface of its own in this boot. If it has none now, a
    /// pod or a network plugin has it.
    pub had_interface: bool,
    /// Whether its interface is a bond of its ports, which the kernel moves into no pod.
    pub is_bond: bool,
    /// Whether it is a virtual function, also in a virtual machine, which sees no physical function.
    pub is_virtual_function: bool,
    /// For a virtual function, the MTU of its physical function's interface.
    pub physical_mtu: Option<u32>,
    /// For a virtual function with configured settings, its place at its physical
    /// function.
    pub function: Option<FunctionFacts>,
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

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaFacts {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// Numbers of its ports.
    pub ports: Vec<u32>,
    /// Ports that are not active now.
    pub inactive: Vec<u32>,
    /// Whether its ports are InfiniBand, so that it needs no interface.
    pub is_infiniband: bool,
    /// Its character devices that exist.
    pub chars: Vec<CharDevice>,
    /// Character devices that its driver names but that do not exist.
    pub missing: Vec<String>,
}

impl Inventory {
    /// Reads the machine.
    pub fn read(host: &HostRoot, ports: &KnownPorts) -> Result<Self, MachineError> {
        Ok(Self::with(&host::snapshot(host, ports)?, host))
    }

    /// The NICs of a machine snapshot, with their existing character devices.
    pub fn with(snapshot: &Snapshot, host: &HostRoot) -> Self {
        let dev = host.dev().join(INFINIBAND);
        Self::new(snapshot, |name| char_device(&dev, name))
    }

    /// Adds the host's virtual interfaces that pods can get.
    #[must_use]
    pub fn with_virtual(mut self, network: &NetworkFacts) -> Self {
        for (name, interface) in virtual_interfaces(network) {
            let nic = NicFacts {
                address: None,
                rdma: None,
                netdev: Some(interface.name.clone()),
                had_interface: true,
                is_bond: false,
                is_virtual_function: false,
                physical_mtu: None,
                function: None,
            };
            self.devices.insert(name, nic);
        }
        self
    }

    /// Joins the functions of bonds that are one NIC.
    #[must_use]
    pub fn with_bonds(mut self, snapshot: &Snapshot, network: &NetworkFacts) -> Self {
        for lag in lags(snapshot, network) {
            let others = lag.functions.iter().filter(|function| **function != lag.first);
            for other in others {
                self.devices.remove(&device_name(*other));
            }
            if let Some(nic) = self.devices.get_mut(&device_name(lag.first)) {
                nic.netdev = Some(lag.bond.name.clone());
                nic.is_bond = true;
            }
        }
        self
    }

    /// Adds which devices had an interface before.
    #[must_use]
    pub fn with_former_interfaces(mut self, names: &BTreeSet<String>) -> Self {
        for (name, nic) in &mut self.devices {
            nic.had_interface |= names.contains(name);
        }
        self
    }

    /// Adds the MTU of its physical function to each virtual function.
    #[must_use]
    pub fn with_physical_mtus(mut self, snapshot: &Snapshot, network: &NetworkFacts) -> Self {
        for function in &snapshot.pci {
            let Some(physical) = function.physical_function else { continue };
            let netdev = snapshot.netdev(physical);
            let interface = netdev.and_then(|netdev| network.interface(&netdev.name));
            if let Some(nic) = self.devices.get_mut(&device_name(function.address)) {
                nic.physical_mtu = interface.and_then(|interface| interface.mtu);
            }
        }
        self
    }

    /// Adds, for each of these devices that is a virtual function, its place at its
    /// physical function. `settings` reads its current settings, by interface and number.
    pub fn with_functions<E>(
        mut self,
        devices: &[&str],
        snapshot: &Snapshot,
        host: &HostRoot,
        settings: impl Fn(&str, u32) -> Result<Option<VirtualFunctionConfig>, E>,
    ) -> Result<Self, E> {
        for name in devices {
            let Some(nic) = self.devices.get_mut(*name) else { continue };
            let function = nic.address.and_then(|address| snapshot.function(address));
            let physical = function.and_then(|function| function.physical_function);
            let Some((address, physical)) = nic.address.zip(physical) else { continue };
            let Some(index) = number_of(address, physical, host) else { continue };
            let netdev = snapshot.netdev(physical);
            let seen =
                netdev.map(|it| Ok(settings(&it.name, index)?.map(|now| (it.name.clone(), now))));
            let seen = seen.transpose()?.flatten();
            nic.function = Some(FunctionFacts { physical, index, seen });
        }
        Ok(self)
    }

    /// The NICs of a snapshot; `find` looks up a character device.
    fn new(snapshot: &Snapshot, find: impl Fn(&str) -> Option<CharDevice>) -> Self {
        let nic = |function: &PciFunction| {
            let rdma = snapshot.rdma_device(function.address);
            let netdev = snapshot.netdev(function.address);
            let rdma = rdma.map(|rdma| {
                let names = || rdma.uverbs.iter().chain(&rdma.umad).chain(&rdma.issm);
                RdmaFacts {
                    name: rdma.name.clone(),
                    ports: rdma.ports.iter().map(|port| port.number).collect(),
                    inactive: inactive(rdma),
                    is_infiniband: !rdma.ports.is_empty()
                        && rdma.ports.iter().all(speaks_infiniband),
                    chars: names().filter_map(|name| find(name)).collect(),
                    missing: names().filter(|name| find(name).is_none()).cloned().collect(),
                }
            });
            let netdev = netdev.map(|netdev| netdev.name.clone());
            let nic = NicFacts {
                address: Some(function.address),
                rdma,
                had_interface: netdev.is_some(),
                netdev,
                is_bond: false,
                is_virtual_function: is_virtual_function(function),
                physical_mtu: None,
                function: None,
            };
            (device_name(function.address), nic)
        };
        let devices = candidates(snapshot)
            .map(nic)
            .filter(|(_, nic)| nic.rdma.is_some() || nic.netdev.is_some())
            .collect();
        Self { devices, rdma_cm: find("rdma_cm") }
    }
}

/// NVIDIA's vendor ID, and the device IDs of its virtual functions: ConnectX-2 and -3, Connect-IB,
/// `ConnectX`-4 to -8, `BlueField` (`mlx4_pci_table` and `mlx5_core_pci_table`).
const NVIDIA: u16 = 0x15b3;
const VIRTUAL_FUNCTIONS: [u16; 10] =
    [0x1002, 0x1004, 0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3];

fn is_virtual_function(function: &PciFunction) -> bool {
    let is_known = function.vendor == NVIDIA && VIRTUAL_FUNCTIONS.contains(&function.device);
    function.physical_function.is_some() || is_known
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

fn inactive(rdma: &RdmaDevice) -> Vec<u32> {
    let ports = rdma.ports.iter().filter(|port| port.state != Some(PortState::Active));
    ports.map(|port| port.number).collect()
}

fn speaks_infiniband(port: &RdmaPort) -> bool {
    port.link_layer == Some(LinkLayer::InfiniBand)
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
