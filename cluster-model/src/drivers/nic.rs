//! The NIC drivers that are built in: how each one publishes its ResourceSlices.
//!
//! The standard attributes (`pciBusID`, `pcieRoot`, `numaNode`) are read whichever driver publishes
//! them; an entry says what else is needed.

use crate::names::{self, attribute};

/// A NIC driver, with the attributes that plans and joins use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NicDriver {
    /// The DRA driver name, `dra.net`.
    pub driver: &'static str,
    /// DeviceClasses that its installation creates, in the order in which they are tried if neither
    /// the pod nor the operator names one.
    pub classes: &'static [&'static str],
    /// What says that a device can do RDMA.
    pub rdma: Rdma,
    /// The driver's own attribute with the PCI address, besides the standard one.
    pub address_attribute: Option<&'static str>,
    /// Attributes by which the NICs of different ports differ, and those of one port do not; a NIC has
    /// one of them.
    pub port_attributes: &'static [&'static str],
    /// The attribute with the name of the interface. A device without it has no interface. `None`
    /// if the driver does not say which devices have one.
    pub interface_attribute: Option<&'static str>,
    /// Whether the name of a device begins with its PCI address: `pci-0000-4d-00-0`.
    pub is_named_by_address: bool,
    /// The name by which a graph knows a NIC and its address, if the driver publishes no address.
    pub graph_name: Option<GraphName>,
    /// Whether its NICs carry this project's attributes: role, rail, port state.
    pub has_roles: bool,
}

/// A name by which a graph knows a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphName {
    /// That of its RDMA device.
    RdmaDevice(NameSource),
    /// That of its network interface.
    Interface(NameSource),
}

/// Where a driver publishes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameSource {
    /// It is the name of the device.
    Device,
    /// It is in this attribute.
    Attribute(&'static str),
}

/// What says that a device can do RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rdma {
    /// This attribute is true.
    True(&'static str),
    /// This attribute has one of these values.
    OneOf(&'static str, &'static [&'static str]),
    /// The driver does not say: every device that a class selects counts.
    ByClass,
}

/// Ours, which is also upstream DRANET's.
pub const OURS: &NicDriver = &BUILT_IN[0];

/// Ours, for a class that excludes NICs with RDMA. It is in no table, since the others are only for
/// pods that name such a class.
pub const OURS_BY_CLASS: &NicDriver = &NicDriver { rdma: Rdma::ByClass, ..BUILT_IN[0] };

/// What most drivers do not have.
const BLANK: NicDriver = NicDriver {
    driver: "",
    classes: &[],
    rdma: Rdma::ByClass,
    address_attribute: None,
    port_attributes: &[],
    interface_attribute: None,
    is_named_by_address: false,
    graph_name: None,
    has_roles: false,
};

/// The built-in drivers.
pub(crate) const BUILT_IN: &[NicDriver] = &[
    NicDriver {
        driver: names::DRIVER,
        classes: &[names::NIC_CLASS],
        rdma: Rdma::True(attribute::dranet::RDMA),
        address_attribute: Some(attribute::dranet::PCI_ADDRESS),
        // A virtual function has that of its physical function.
        port_attributes: &[attribute::RAIL, attribute::PORT],
        interface_attribute: Some(attribute::dranet::IF_NAME),
        has_roles: true,
        ..BLANK
    },
    // AWS's networking device plugin 1.0.0 for EKS (`eks/networking-device-dra-plugin`), as
    // described in NVIDIA/aicr 1326 and 1410: its devices are named like RDMA devices
    // (`rocep202s0`). Its source is not public; EFA by the chart `aws-dranet` is `dra.net`.
    NicDriver {
        driver: "dra.networking.k8s.aws",
        classes: &["roce.networking.k8s.aws", "efa.networking.k8s.aws"],
        rdma: Rdma::OneOf("dra.vpc.amazonaws.com/deviceType", &["efa", "roce"]),
        graph_name: Some(GraphName::RdmaDevice(NameSource::Device)),
        ..BLANK
    },
    // k8snetworkplumbingwg/dra-driver-sriov, commits cd9404f and 0b233ef
    // (`pkg/devicestate/discovery.go`). Virtual functions only.
    NicDriver {
        driver: "sriovnetwork.k8snetworkplumbingwg.io",
        classes: &["sriovnetwork.k8snetworkplumbingwg.io"],
        rdma: Rdma::True("sriovnetwork.k8snetworkplumbingwg.io/rdmaCapable"),
        address_attribute: Some("sriovnetwork.k8snetworkplumbingwg.io/pciAddress"),
        port_attributes: &["sriovnetwork.k8snetworkplumbingwg.io/pfPciAddress"],
        ..BLANK
    },
    // cilium/cilium, commits 0386304 (the standard bus ID) and 5e257a3 (`pciAddr`),
    // `pkg/networkdriver`. Its classes are written by the operator for a pool each.
    NicDriver {
        driver: "networkdriver.cilium.io",
        classes: &["networkdriver.cilium.io"],
        address_attribute: Some("networkdriver.cilium.io/pciAddr"),
        ..BLANK
    },
    // GKE's managed DRANET, as llm-d's guide for GKE prints its slices. Its program is DRANET
    // (`dranet:v1.0.1-gke.5`), whose own driver name is `dra.net`; both are known here.
    NicDriver {
        driver: "mrdma.google.com",
        classes: &["mrdma.google.com"],
        address_attribute: Some(attribute::dranet::PCI_ADDRESS),
        interface_attribute: Some(attribute::dranet::IF_NAME),
        ..BLANK
    },
];
