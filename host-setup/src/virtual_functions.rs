//! Decides how many virtual functions each physical function gets, whether the number may
//! change now, and which virtual functions must not be published yet. Pure.
//!
//! The kernel accepts a new number only after the number was set to 0
//! (`sriov_numvfs_store`, `drivers/pci/iov.c`), which removes all virtual functions. A change
//! therefore waits until none of them is in use, and none is allocated meanwhile.
//!
//! Virtual functions of an InfiniBand port need [GUIDs](guid), which their driver reads only
//! when it starts. They are therefore created, given GUIDs, and recreated: the physical
//! function's driver keeps the GUIDs (`sriov_restore_guids`,
//! `drivers/net/ethernet/mellanox/mlx5/core/sriov.c`).

pub(crate) mod create;
pub mod guid;
pub mod policy;
mod progress;
mod sriov;

use policy::{Candidate, SriovPolicy};
pub use progress::{Action, Progress};
use publication::network::{NetworkFacts, Withheld};
use publication::nic::{device_name, is_usable};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology_graph::{LinkLayer, PciAddress, PciFunction, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers, whose interfaces are created independently.
const CLASS_INFINIBAND: u32 = 0x0207;

/// What is known about the machine.
#[derive(Clone, Copy, Debug)]
pub struct VfFacts<'a> {
    /// Its PCI functions, and the interfaces and RDMA devices in the host's namespace.
    pub snapshot: &'a Snapshot,
    /// The host's interfaces.
    pub network: &'a NetworkFacts,
    /// The devices of prepared claims.
    pub held: &'a BTreeSet<String>,
    /// Physical functions whose virtual functions got GUIDs from this process, or cannot get
    /// any.
    pub guided: &'a BTreeSet<PciAddress>,
}

/// A physical function that a policy selects, and the verdict on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its directory below the sysfs mount.
    pub path: String,
    /// Its interface, if that is in the host's namespace.
    pub interface: Option<String>,
    /// The number of virtual functions that it has.
    pub present: u16,
    /// The number of virtual functions in the policy.
    pub wanted: u16,
    /// The device names of its virtual functions.
    pub functions: BTreeSet<String>,
    /// The node GUID of its InfiniBand port, from which those of virtual functions are derived.
    pub guid: Option<u64>,
    /// What to do.
    pub verdict: Verdict,
}

/// What to do for one physical function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The number is right, and on InfiniBand all virtual functions have GUIDs.
    Nothing,
    /// There are no virtual functions: they can be created at once.
    Make,
    /// The number is wrong or GUIDs are missing, and no virtual function is in use.
    Replace,
    /// The number cannot be changed now.
    Wait(Obstacle),
}

/// Why the number of virtual functions cannot be changed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The physical function does not support that many.
    TooMany {
        /// The maximum number.
        most: u16,
    },
    /// No usable kernel driver is bound to the physical function.
    Unbound,
    /// The node's own traffic goes through its interface.
    Uplink {
        /// The interface.
        interface: String,
    },
    /// Its interface belongs to a bond, bridge or virtual switch.
    Member {
        /// The interface.
        interface: String,
        /// The bond, bridge or virtual switch.
        master: String,
    },
    /// A pod has the physical function itself.
    Given,
    /// One of its virtual functions is in use.
    InUse {
        /// The device name.
        device: String,
        /// Who uses it.
        user: User,
    },
}

/// Who uses a virtual function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A claim that is prepared on this node.
    Prepared,
    /// A claim to which it is allocated, `namespace/name`.
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
            Self::TooMany { most } => write!(f, "it supports at most {most}; lower numVfs"),
            Self::Unbound => f.write_str("it is not bound to a kernel driver; bind it to one"),
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

/// Judges each physical function that a policy selects. The first matching policy applies.
pub fn judge(policies: &[SriovPolicy], machine: VfFacts<'_>) -> BTreeMap<PciAddress, Judged> {
    let functions = machine.snapshot.pci.iter();
    let physical = functions.filter(|function| {
        function.class >> 16 == CLASS_NETWORK && function.sriov_total_vfs.is_some_and(|it| it > 0)
    });
    physical
        .filter_map(|function| {
            let interface = machine.interface(function.address);
            let candidate = Candidate {
                vendor: function.vendor,
                device_id: function.device,
                address: function.address,
                interface,
            };
            let policy = policies.iter().find(|policy| policy.selects(candidate))?;
            Some((function.address, machine.judge(function, policy)))
        })
        .collect()
}

impl<'a> VfFacts<'a> {
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

    /// Whether this virtual function is in use, as far as the machine shows.
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

    /// Whether a function with a kernel driver is in another network namespace: it has no
    /// interface here, and on InfiniBand no RDMA device either.
    fn is_elsewhere(self, function: &PciFunction) -> bool {
        let is_infiniband = function.class >> 8 == CLASS_INFINIBAND;
        let has_rdma = self.snapshot.rdma_device(function.address).is_some();
        self.interface(function.address).is_none() && !(is_infiniband && has_rdma)
    }

    /// The node GUID of a physical function whose virtual functions can be given GUIDs. The
    /// kernel accepts GUIDs only through an InfiniBand interface.
    fn guid(self, physical: PciAddress) -> Option<u64> {
        let rdma = self.snapshot.rdma_device(physical)?;
        let mut ports = rdma.ports.iter();
        let is_infiniband = ports.any(|port| port.link_layer == Some(LinkLayer::InfiniBand));
        let can_give = is_infiniband && self.interface(physical).is_some();
        let guid = guid::parse(rdma.node_guid.as_ref()?)?;
        Some(guid).filter(|guid| can_give && *guid != 0)
    }

    /// Whether one of its virtual functions has no GUID and can be given one.
    fn lacks_guid(self, physical: &PciFunction) -> bool {
        !self.guided.contains(&physical.address)
            && self.functions(physical.address).any(|function| {
                let rdma = self.snapshot.rdma_device(function.address);
                let guid = rdma.and_then(|rdma| guid::parse(rdma.node_guid.as_ref()?));
                guid == Some(0)
            })
    }

    fn withheld(self, address: PciAddress) -> Option<Obstacle> {
        let withheld = self.network.withheld();
        let interfaces = self.snapshot.netdevs_of(address);
        let mut interfaces = interfaces.filter_map(|netdev| self.network.interface(&netdev.name));
        interfaces.find_map(|it| {
            let interface = it.name.clone();
            Some(match withheld.get(&it.index)? {
                Withheld::Uplink | Withheld::EarlierUplink => Obstacle::Uplink { interface },
                Withheld::Member(master) => Obstacle::Member { interface, master: master.clone() },
                Withheld::Below(_)
                | Withheld::OfOthers
                | Withheld::SwitchPort
                | Withheld::Operator => return None,
            })
        })
    }

    /// The virtual functions of a physical function.
    fn functions(self, physical: PciAddress) -> impl Iterator<Item = &'a PciFunction> {
        let functions = self.snapshot.pci.iter();
        functions.filter(move |function| function.physical_function == Some(physical))
    }

    /// The interface of a function, if that is in the host's namespace.
    fn interface(self, address: PciAddress) -> Option<&'a str> {
        let mut netdevs = self.snapshot.netdevs_of(address);
        let found = netdevs.find_map(|netdev| self.network.interface(&netdev.name));
        found.map(|interface| interface.name.as_str())
    }

    /// The virtual functions that lack an interface or an RDMA device although their physical
    /// function has one. The kernel creates these after the virtual function.
    fn incomplete(self, physical: PciAddress) -> impl Iterator<Item = PciAddress> {
        let [interface, rdma] = self.parts(physical);
        self.functions(physical).map(|it| it.address).filter(move |address| {
            let [own_interface, own_rdma] = self.parts(*address);
            interface && !own_interface || rdma && !own_rdma
        })
    }

    /// Whether a function has an interface, and whether it has an RDMA device.
    fn parts(self, address: PciAddress) -> [bool; 2] {
        [self.interface(address).is_some(), self.snapshot.rdma_device(address).is_some()]
    }
}

#[cfg(test)]
pub(crate) mod tests;
