//! The NICs of a machine: functions and interfaces that pods could be given, with all that is known
//! of each. Pure; [`judge`](crate::judge::judge) says which of them pods can get, and
//! [`attributes`](crate::attributes) writes them as devices.
//!
//! The link type comes from the ports: the interface of an Ethernet function may be in a pod's
//! namespace.
//!
//! Other values are about a NIC for a reason of their own: an [`Interface`] is what rtnetlink says, also of what
//! is no NIC; a `Device` is the form of the API; a [`LateNic`](crate::late::LateNic) hands a verdict to
//! preparation. In node-driver a `HostLink` is what the host gets back, and a `PlannedDevice` what a claim has.

mod found;

use crate::attribute::Text;
use crate::health::{PortErrors, Problem, Vitals};
use crate::held::Holding;
use crate::lag::Lag;
use crate::network::{Interface, VETH, Withheld};
use cluster_model::names::LATE_PLACE;
pub use found::nics;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{
    Netdev, NicRole, NumaNode, PciAddress, PciFunction, PortState, RdmaDevice, RdmaPort,
};

/// Drivers that reserve a function for a virtual machine or a program, as in upstream.
const HOLDERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"];

/// The kind of link that a NIC has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum LinkType {
    /// InfiniBand, with or without IP over it.
    InfiniBand,
    /// Ethernet, with or without verbs (RoCE, iWARP).
    Ethernet,
    /// Verbs over a fabric that is neither: EFA, eRDMA.
    Verbs,
    /// A network interface without a device.
    #[default]
    Virtual,
}

/// Something that could be a NIC of pods, with all that is known of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NicState {
    /// Name of the device in a slice.
    pub name: String,
    /// Its kind of link.
    pub link_type: LinkType,
    /// Its PCI function, or that of which it is a part; `None` for a virtual interface.
    pub function: Option<PciFunction>,
    /// The scalable function that it is, `mlx5_core.sf.4`: a part of a PCI function with an RDMA device of its
    /// own (`Documentation/networking/devlink/devlink-port.rst`).
    pub part: Option<String>,
    /// Its RDMA device.
    pub rdma: Option<RdmaDevice>,
    /// Its own network interface as sysfs has it, also if the kernel was not asked for interfaces.
    pub netdev: Option<Netdev>,
    /// Its own network interface, if that is in the host's namespace.
    pub interface: Option<Interface>,
    /// Name of the interface below that one, without which it reaches nothing.
    pub lower: Option<String>,
    /// The bond that joins its port with others.
    pub lag: Option<Lag>,
    /// Whether its PCIe link runs slower or narrower than both the NIC and the port above support.
    pub link_degraded: Option<bool>,
    /// Why the host keeps it.
    #[serde(skip)]
    pub kept: Option<Kept>,
    /// What it is for.
    pub role: Option<NicRole>,
    /// Its NUMA node: from firmware, or from what is known about the VM size.
    pub numa: Option<NumaNode>,
    /// The PCIe switch above it, by its name in the topology.
    pub switch: Option<String>,
    /// UUID of the GPU that the topology pairs with it alone.
    pub partner: Option<String>,
    /// The rail that it is cabled to: NICs of different machines with the same number are.
    pub rail: Option<u32>,
    /// What it shares with all NICs of its machine.
    pub machine: MachineFacts,
    /// What is so now. Nothing of it is remembered.
    #[serde(skip)]
    pub now: NicNow,
}

/// What all NICs of a machine have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineFacts {
    /// The hash of the graph.
    pub shape: String,
    /// The fabric of the whole machine.
    pub fabric: Option<String>,
    /// The driver of the GPUs that are present. If there are several, the first known one: a table has
    /// room for the join attributes of one driver.
    pub gpu_driver: Option<String>,
    /// The cloud's attributes.
    pub cloud: BTreeMap<String, Text>,
}

/// Why the host keeps a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The reason.
    pub reason: Withheld,
    /// The interface for which the host keeps it.
    pub interface: Option<String>,
}

/// What is so of a NIC at one look.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub struct NicNow {
    /// The parts that a pod has, if it is allocated.
    pub holding: Option<Holding>,
    /// A pod has it, but the machine no longer does.
    pub is_gone: bool,
    /// The function of the same port that is given out instead.
    pub other_function: Option<OtherFunction>,
    /// Its virtual functions are being created, or it is one of them.
    pub is_not_ready: bool,
    /// The operator's filter drops it.
    pub is_dropped: bool,
    /// The operator lets claims share it.
    pub is_shared: bool,
    /// Its driver is being loaded from a vendor's container.
    pub driver_is_loading: bool,
    /// A vendor's container waits until no pod has it.
    pub driver_is_awaited: bool,
    /// Its RDMA device does not answer.
    pub is_unresponsive: bool,
    /// Errors of its ports.
    pub port_errors: Option<PortErrors>,
    /// Corrected errors of its PCIe link.
    pub pcie_errors: Option<u64>,
    /// What is wrong with it.
    pub problems: BTreeSet<Problem>,
}

/// A function by which the port of a NIC is given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherFunction {
    /// A virtual function of it, as a device in a slice.
    Virtual(String),
    /// Its physical function, which a pod has, as a device in a slice.
    Physical(String),
}

impl NicState {
    /// Its PCI address; `None` for a virtual interface.
    pub fn address(&self) -> Option<PciAddress> {
        self.function.as_ref().map(|function| function.address)
    }

    /// Its physical function, if it is a virtual one and the machine has both.
    pub fn physical_function(&self) -> Option<PciAddress> {
        self.function.as_ref()?.physical_function
    }

    /// The interface that goes with it: the bond, if it joins its ports. IPoIB interfaces do not count:
    /// they are created and removed independently of the NIC.
    pub fn own_interface(&self) -> Option<&Interface> {
        let bond = self.lag.as_ref().map(|lag| &lag.bond);
        bond.or(self.interface.as_ref()).filter(|_| self.link_type != LinkType::InfiniBand)
    }

    /// The name of the interface by which the host reaches it, IPoIB included.
    pub fn link_name(&self) -> Option<&str> {
        let bond = self.lag.as_ref().map(|lag| &lag.bond.name);
        let interface = self.interface.as_ref().map(|interface| &interface.name);
        let netdev = self.netdev.as_ref().map(|netdev| &netdev.name);
        bond.or(interface).or(netdev).map(String::as_str)
    }

    /// The first port. It represents the NIC if there are several.
    pub fn port(&self) -> Option<&RdmaPort> {
        self.rdma.as_ref()?.ports.first()
    }

    /// Whole gigabits per second.
    pub fn rate_gbps(&self) -> Option<u32> {
        Some(self.port()?.rate_megabits? / 1_000)
    }

    /// Whether it is a compute NIC with RDMA.
    pub fn is_compute(&self) -> bool {
        self.role == Some(NicRole::Compute) && self.rdma.is_some()
    }

    /// Whether the host has something of it that a pod can be given, as this device. The host may need it
    /// itself: whether a claim gets it then depends on what of it the claim asks for.
    pub fn can_be_prepared(&self) -> bool {
        let Some(function) = &self.function else {
            let kept = self.kept.as_ref().map(|kept| &kept.reason);
            return matches!(kept, None | Some(Withheld::Below(_)));
        };
        let is_first = self.lag.as_ref().is_none_or(|lag| lag.first == function.address);
        is_usable(function) && is_first && (self.rdma.is_some() || self.netdev.is_some())
    }

    /// Whether it has a port of its own: a virtual or scalable function has that of its physical function.
    pub fn is_port(&self) -> bool {
        self.function.as_ref().is_some_and(|it| it.physical_function.is_none())
            && self.part.is_none()
    }

    /// Whether it is one end of a pair by which a network plugin connects a pod.
    pub fn is_veth(&self) -> bool {
        self.interface.as_ref().is_some_and(|it| it.kind.as_deref() == Some(VETH))
    }

    /// Whether an InfiniBand NIC has an active port, or an Ethernet NIC with verbs whose interface is
    /// set up; `None` if no port state is known. An Ethernet port is down until somebody sets its
    /// interface up.
    fn port_up(&self) -> Option<bool> {
        let is_judged = match self.link_type {
            LinkType::InfiniBand => true,
            LinkType::Ethernet => self.own_interface().is_some_and(|it| it.is_up == Some(true)),
            LinkType::Verbs | LinkType::Virtual => false,
        };
        let rdma = self.rdma.as_ref().filter(|_| is_judged)?;
        let mut states = rdma.ports.iter().filter_map(|port| port.state).peekable();
        states.peek()?;
        Some(states.any(|state| state == PortState::Active))
    }

    /// What is observed of its health.
    pub(crate) fn vitals(&self) -> Vitals {
        if self.now.is_gone {
            return Vitals { gone: true, ..Vitals::default() };
        }
        let port_up = self.port_up();
        Vitals {
            port_up,
            is_ethernet: port_up.is_some() && self.link_type == LinkType::Ethernet,
            link_degraded: self.link_degraded,
            port_errors: self.now.port_errors,
            pcie_errors: self.now.pcie_errors,
            unresponsive: self.now.is_unresponsive,
            gone: false,
        }
    }

    /// As the next look must know it.
    #[must_use]
    pub fn remembered(&self) -> Self {
        Self { kept: None, now: NicNow::default(), ..self.clone() }
    }
}

/// The device name of a function in a slice, such as `pci-0101-00-00-0`, as in upstream.
pub fn device_name(address: PciAddress) -> String {
    format!("pci-{}", address.to_string().replace([':', '.'], "-"))
}

/// The driver that reserves a function for a virtual machine or a program.
pub(crate) fn holder(function: &PciFunction) -> Option<&String> {
    function.driver.as_ref().filter(|driver| HOLDERS.contains(&driver.as_str()))
}

/// Whether a driver is bound to the function that does not only reserve it.
pub fn is_usable(function: &PciFunction) -> bool {
    function.driver.is_some() && holder(function).is_none()
}

/// The device name of a virtual interface in a slice: its own name if that is a DNS label,
/// otherwise `net-` and its bytes in hexadecimal. Names of functions and of places are no such names.
pub fn interface_device_name(name: &str) -> String {
    let is_label =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
    let is_taken = ["pci-", "net-", LATE_PLACE].iter().any(|prefix| name.starts_with(prefix));
    if is_label && !is_taken {
        return name.to_owned();
    }
    let hex: Vec<String> = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("net-{}", hex.concat())
}

#[cfg(test)]
mod tests;
