//! How many virtual functions each physical function is to have, whether that may be changed
//! now, and which of them are not to be published yet. Pure.
//!
//! The kernel refuses to change from one number to another but by way of none
//! (`sriov_numvfs_store`, `drivers/pci/iov.c`), and with none all of them are gone. So another
//! number waits until nobody has any of them, and they are given to nobody meanwhile.
//!
//! Those of an InfiniBand port need [GUIDs](guid), which their own driver reads only when it
//! starts. So they are made, get GUIDs, and are made anew: the physical function's driver keeps
//! the GUIDs (`sriov_restore_guids`, `drivers/net/ethernet/mellanox/mlx5/core/sriov.c`).

pub mod guid;
pub mod policy;
mod progress;

use crate::decide::nic::{device_name, is_usable};
use crate::facts::network::{NetworkFacts, Withheld};
use policy::{Candidate, SriovPolicy};
pub use progress::{Action, Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology_graph::{LinkLayer, PciAddress, PciFunction, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers, whose interfaces come and go on their own.
const CLASS_INFINIBAND: u32 = 0x0207;

/// What is known of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Its PCI functions, interfaces and RDMA devices, of those in the host's hands.
    pub snapshot: &'a Snapshot,
    /// The host's interfaces.
    pub network: &'a NetworkFacts,
    /// The devices that claims have.
    pub held: &'a BTreeSet<String>,
    /// Physical functions whose virtual ones got GUIDs from this process, or cannot get any.
    pub guided: &'a BTreeSet<PciAddress>,
}

/// A physical function for which there is a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its directory below the sysfs mount.
    pub path: String,
    /// Its interface, where the host has it.
    pub interface: Option<String>,
    /// How many virtual functions it has.
    pub present: u16,
    /// How many it is to have.
    pub wanted: u16,
    /// Those that it has, by the names of their devices.
    pub functions: BTreeSet<String>,
    /// The node GUID of its InfiniBand port, from which virtual functions get theirs.
    pub guid: Option<u64>,
    /// What follows.
    pub verdict: Verdict,
}

/// What is to be done at one physical function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has as many as it is to have, and these have GUIDs if it is of InfiniBand.
    Nothing,
    /// It has none: they can be made at once.
    Make,
    /// It has others, or some without a GUID, and nobody has any of them.
    Replace,
    /// Not now.
    Wait(Obstacle),
}

/// What stands against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It cannot have so many.
    TooMany {
        /// Most that it can have.
        most: u16,
    },
    /// No driver of the kernel's runs it.
    Unbound,
    /// The node's own traffic goes through its interface.
    Uplink {
        /// Which one.
        interface: String,
    },
    /// Its interface belongs to another.
    Member {
        /// Which one.
        interface: String,
        /// The bond, bridge or virtual switch.
        master: String,
    },
    /// A pod has the physical function itself.
    Given,
    /// Somebody has one of those that it has now.
    InUse {
        /// Its device's name.
        device: String,
        /// Who.
        user: User,
    },
}

/// Who has a virtual function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A claim that was prepared on this node.
    Prepared,
    /// A claim that the scheduler gave it to, `namespace/name`.
    Allocated(String),
    /// A driver that gives it to a virtual machine or a program.
    Driver(String),
    /// Another network namespace.
    Namespace,
    /// The host itself.
    Host,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { most } => write!(f, "it can have {most} at most; lower numVfs"),
            Self::Unbound => f.write_str("no driver of the kernel's runs it; bind it to one"),
            Self::Uplink { interface } => write!(
                f,
                "the node's own traffic goes through `{interface}`; select others, or set allowUplink"
            ),
            Self::Member { interface, master } => {
                write!(f, "`{interface}` belongs to `{master}`; select others, or set allowUplink")
            }
            Self::Given => f.write_str("a pod has it; drain the node, or wait until the pod ends"),
            Self::InUse { device, user } => {
                write!(f, "{user} has `{device}`; drain the node, or wait until that ends")
            }
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepared => f.write_str("a claim on this node"),
            Self::Allocated(claim) => write!(f, "claim `{claim}`"),
            Self::Driver(driver) => write!(f, "driver `{driver}`"),
            Self::Namespace => f.write_str("another network namespace"),
            Self::Host => f.write_str("the host itself"),
        }
    }
}

/// Judges each physical function that a policy selects, by the first that does.
pub fn judge(policies: &[SriovPolicy], machine: Machine<'_>) -> BTreeMap<PciAddress, Judged> {
    let functions = machine.snapshot.pci.iter();
    let physical = functions.filter(|function| {
        function.class >> 16 == CLASS_NETWORK && function.sriov_total_vfs.is_some_and(|it| it > 0)
    });
    let judged = |function: &PciFunction| {
        let interface = machine.interface(function.address);
        let candidate = Candidate {
            vendor: function.vendor,
            device_id: function.device,
            address: function.address,
            interface,
        };
        let policy = policies.iter().find(|policy| policy.selects(candidate))?;
        Some((function.address, machine.judge(function, policy)))
    };
    physical.filter_map(judged).collect()
}

impl<'a> Machine<'a> {
    fn judge(self, function: &PciFunction, policy: &SriovPolicy) -> Judged {
        let present = function.sriov_num_vfs.unwrap_or_default();
        let wanted = policy.num_vfs;
        let names = self.functions(function.address).map(|it| device_name(it.address));
        let guid = self.guid(function.address);
        Judged {
            path: function.path.clone(),
            interface: self.interface(function.address).map(str::to_owned),
            present,
            wanted,
            functions: names.collect(),
            guid,
            verdict: if present == wanted && !(guid.is_some() && self.lacks_guid(function)) {
                Verdict::Nothing
            } else if let Some(obstacle) = self.obstacle(function, policy) {
                Verdict::Wait(obstacle)
            } else if present == 0 {
                Verdict::Make
            } else {
                Verdict::Replace
            },
        }
    }

    fn obstacle(self, function: &PciFunction, policy: &SriovPolicy) -> Option<Obstacle> {
        let most = function.sriov_total_vfs.unwrap_or_default();
        if policy.num_vfs > most {
            return Some(Obstacle::TooMany { most });
        }
        if !is_usable(function) {
            return Some(Obstacle::Unbound);
        }
        if self.held.contains(&device_name(function.address)) {
            return Some(Obstacle::Given);
        }
        let withheld = self.withheld(function.address).filter(|_| !policy.allow_uplink);
        withheld.or_else(|| self.functions(function.address).find_map(|it| self.in_use(it)))
    }

    /// Whether somebody has this virtual function, as far as the machine tells.
    fn in_use(self, function: &PciFunction) -> Option<Obstacle> {
        let device = device_name(function.address);
        let driver = function.driver.as_ref();
        let user = if self.held.contains(&device) {
            User::Prepared
        } else if self.withheld(function.address).is_some() {
            User::Host
        } else if let Some(driver) = driver.filter(|_| !is_usable(function)) {
            User::Driver(driver.clone())
        } else if driver.is_some() && self.is_elsewhere(function) {
            User::Namespace
        } else {
            return None;
        };
        Some(Obstacle::InUse { device, user })
    }

    /// A function that the kernel runs has an interface; of InfiniBand it may have an RDMA
    /// device alone.
    fn is_elsewhere(self, function: &PciFunction) -> bool {
        let is_infiniband = function.class >> 8 == CLASS_INFINIBAND;
        let has_rdma = self.snapshot.rdma_device(function.address).is_some();
        self.interface(function.address).is_none() && !(is_infiniband && has_rdma)
    }

    /// The node GUID of a physical function that can give GUIDs to its virtual ones: the kernel
    /// takes them at an interface of InfiniBand.
    fn guid(self, physical: PciAddress) -> Option<u64> {
        let rdma = self.snapshot.rdma_device(physical)?;
        let mut ports = rdma.ports.iter();
        let is_infiniband = ports.any(|port| port.link_layer == Some(LinkLayer::InfiniBand));
        let can_give = is_infiniband && self.interface(physical).is_some();
        let guid = guid::parse(rdma.node_guid.as_ref()?)?;
        Some(guid).filter(|guid| can_give && *guid != 0)
    }

    /// Whether one of its virtual functions has no GUID, and can be given one.
    fn lacks_guid(self, physical: &PciFunction) -> bool {
        let is_zero = |function: &PciFunction| {
            let rdma = self.snapshot.rdma_device(function.address);
            let guid = rdma.and_then(|rdma| guid::parse(rdma.node_guid.as_ref()?));
            guid == Some(0)
        };
        !self.guided.contains(&physical.address) && self.functions(physical.address).any(is_zero)
    }

    fn withheld(self, address: PciAddress) -> Option<Obstacle> {
        let withheld = self.network.withheld();
        let interfaces = self.snapshot.netdevs_of(address);
        let mut interfaces = interfaces.filter_map(|netdev| self.network.interface(&netdev.name));
        interfaces.find_map(|it| {
            let interface = it.name.clone();
            Some(match withheld.get(&it.index)? {
                Withheld::Uplink => Obstacle::Uplink { interface },
                Withheld::Member(master) => Obstacle::Member { interface, master: master.clone() },
            })
        })
    }

    /// The virtual functions of a physical one.
    fn functions(self, physical: PciAddress) -> impl Iterator<Item = &'a PciFunction> {
        let functions = self.snapshot.pci.iter();
        functions.filter(move |function| function.physical_function == Some(physical))
    }

    /// The interface of a function, where the host has it.
    fn interface(self, address: PciAddress) -> Option<&'a str> {
        let mut netdevs = self.snapshot.netdevs_of(address);
        let found = netdevs.find_map(|netdev| self.network.interface(&netdev.name));
        found.map(|interface| interface.name.as_str())
    }

    /// The virtual functions that lack an interface or an RDMA device which their physical
    /// function has: the kernel makes these after the function.
    fn incomplete(self, physical: PciAddress) -> impl Iterator<Item = PciAddress> {
        let has = move |address| {
            let has_rdma = self.snapshot.rdma_device(address).is_some();
            (self.interface(address).is_some(), has_rdma)
        };
        let (interface, rdma) = has(physical);
        let lacks = move |address| {
            let (own_interface, own_rdma) = has(address);
            interface && !own_interface || rdma && !own_rdma
        };
        self.functions(physical).map(|it| it.address).filter(move |address| lacks(*address))
    }
}

#[cfg(test)]
pub(crate) mod tests;
