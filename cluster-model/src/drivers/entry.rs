//! The entries of the operator's file of drivers. The documentation of each field is also that of
//! the schema.

use super::gpu::{GpuDriver, Part};
use super::nic::{GraphName, NameSource, NicDriver, Rdma};
use super::text::{Attribute, Class, DriverName, Id};
use serde::Deserialize;

/// Where the PCI address of a device is, if the driver does not publish
/// `resource.kubernetes.io/pciBusID`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum AddressSource {
    /// It is not published. Devices without an address have no place in a graph.
    #[default]
    None,
    /// In this attribute, such as `example.com/pciAddress`.
    Attribute(Attribute),
    /// The name of a device begins with it, with hyphens: `0000-4d-00-0` or `pci-0000-4d-00-0`.
    DeviceName,
    /// The name of a device is that of its RDMA device; the graph of its node has the address. Only
    /// for NICs.
    RdmaDeviceName,
    /// The name of the RDMA device is in this attribute; the graph of its node has the address. Only
    /// for NICs.
    RdmaDeviceAttribute(Attribute),
    /// The name of a device is that of its network interface; the graph of its node has the address.
    /// Only for NICs.
    InterfaceName,
    /// The name of the network interface is in this attribute; the graph of its node has the address.
    /// Only for NICs.
    InterfaceAttribute(Attribute),
}

/// Which devices are whole accelerators.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WholeEntry {
    /// Attribute with the kind of a device.
    pub attribute: Attribute,
    /// Its value on every whole accelerator.
    pub value: String,
}

/// Parts of accelerators that claims can request.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartEntry {
    /// DeviceClass of the parts.
    pub class: String,
    /// Value of the attribute of `whole` on every part.
    pub value: String,
    /// Attribute with the PCI address of a part's accelerator, besides
    /// `resource.kubernetes.io/pciBusID`.
    #[serde(default)]
    pub address_attribute: Option<Attribute>,
    /// Attribute with the size of a part.
    pub profile_attribute: Attribute,
    /// Prefix of extended resources of which the rest is a size, such as `nvidia.com/mig-`.
    #[serde(default)]
    pub profile_resources: Option<String>,
}

/// A driver of accelerators.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcceleratorEntry {
    /// Name of the DRA driver, as in its ResourceSlices.
    pub driver: DriverName,
    /// DeviceClass of the accelerators.
    pub class: String,
    /// PCI vendor ID of the accelerators.
    pub pci_vendor: Id,
    /// PCI classes of the accelerators, with which node-driver finds them.
    pub pci_classes: Vec<Class>,
    /// Which devices are whole accelerators; without it, all are.
    #[serde(default)]
    pub whole: Option<WholeEntry>,
    /// Attribute with the UUID of an accelerator, if NICs name it too.
    #[serde(default)]
    pub uuid_attribute: Option<Attribute>,
    /// Where the PCI address of a device is, if the driver does not publish
    /// `resource.kubernetes.io/pciBusID`.
    #[serde(default)]
    pub address: AddressSource,
    /// The driver's own NUMA attribute, if it does not publish `resource.kubernetes.io/numaNode`.
    #[serde(default)]
    pub numa_attribute: Option<Attribute>,
    /// Extended resources in limits of containers, one of which is one whole accelerator.
    #[serde(default)]
    pub extended_resources: Vec<String>,
    /// Prefixes of extended resources that are a part or a share of an accelerator.
    #[serde(default)]
    pub partial_resources: Vec<String>,
    /// Parts of accelerators that claims can request. It needs `whole`.
    #[serde(default)]
    pub part: Option<PartEntry>,
}

/// Which NICs can do RDMA.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RdmaEntry {
    /// Attribute that says it.
    pub attribute: Attribute,
    /// Its values on NICs that can do RDMA; without them, it must be true.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A driver of NICs.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NicEntry {
    /// Name of the DRA driver, as in its ResourceSlices. `dra.net` cannot be replaced.
    pub driver: DriverName,
    /// DeviceClasses of the NICs, in the order in which they are tried.
    pub classes: Vec<String>,
    /// Which NICs can do RDMA; without it, all that a class selects.
    #[serde(default)]
    pub rdma: Option<RdmaEntry>,
    /// Where the PCI address of a device is, if the driver does not publish
    /// `resource.kubernetes.io/pciBusID`.
    #[serde(default)]
    pub address: AddressSource,
    /// Attribute with the name of a network interface. A NIC without it has none.
    #[serde(default)]
    pub interface_attribute: Option<Attribute>,
    /// Attribute that differs between ports, and is the same on all functions of a port.
    #[serde(default)]
    pub port_attribute: Option<Attribute>,
}

fn leak(text: String) -> &'static str {
    text.leak()
}

fn leak_all(texts: Vec<String>) -> &'static [&'static str] {
    let texts: Vec<&'static str> = texts.into_iter().map(leak).collect();
    texts.leak()
}

fn leak_attribute(attribute: Option<Attribute>) -> Option<&'static str> {
    attribute.map(|attribute| leak(attribute.0))
}

fn name_in(attribute: &Attribute) -> NameSource {
    NameSource::Attribute(leak(attribute.0.clone()))
}

impl AddressSource {
    fn attribute(&self) -> Option<&'static str> {
        match self {
            Self::Attribute(attribute) => leak_attribute(Some(attribute.clone())),
            Self::None
            | Self::DeviceName
            | Self::RdmaDeviceName
            | Self::RdmaDeviceAttribute(_)
            | Self::InterfaceName
            | Self::InterfaceAttribute(_) => None,
        }
    }

    /// The name by which a graph knows a NIC, if that says where it is.
    fn graph_name(&self) -> Option<GraphName> {
        match self {
            Self::None | Self::DeviceName | Self::Attribute(_) => None,
            Self::RdmaDeviceName => Some(GraphName::RdmaDevice(NameSource::Device)),
            Self::RdmaDeviceAttribute(attribute) => Some(GraphName::RdmaDevice(name_in(attribute))),
            Self::InterfaceName => Some(GraphName::Interface(NameSource::Device)),
            Self::InterfaceAttribute(attribute) => Some(GraphName::Interface(name_in(attribute))),
        }
    }
}

/// Why an entry is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Another entry has the same driver.
    #[error("line {0} has an entry for this driver already; keep one")]
    Duplicate(u64),
    /// This project's own driver.
    #[error("this is this project's driver, which cannot be replaced")]
    Own,
    /// Accelerators are not named after RDMA devices and interfaces.
    #[error(
        "`address`: only NICs have RDMA devices and interfaces; use `deviceName` or `attribute`"
    )]
    NicNameOfAccelerator,
    /// Parts cannot be told from whole accelerators.
    #[error("`part` needs `whole`, whose attribute distinguishes parts from whole accelerators")]
    PartWithoutWhole,
    /// No class of the NICs.
    #[error("`classes` is empty; name the DeviceClass of the NICs")]
    NoClasses,
    /// No class of the PCI functions.
    #[error("`pciClasses` is empty; `lspci -n` shows the class of a function, for example 1200")]
    NoPciClasses,
}

impl AcceleratorEntry {
    /// Checks what one field cannot say.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        if self.address.graph_name().is_some() {
            return Err(FieldError::NicNameOfAccelerator);
        }
        if self.part.is_some() && self.whole.is_none() {
            return Err(FieldError::PartWithoutWhole);
        }
        if self.pci_classes.is_empty() {
            return Err(FieldError::NoPciClasses);
        }
        Ok(())
    }

    /// The driver of whole accelerators, and of their parts. It is never freed.
    pub(super) fn leak(self) -> (GpuDriver, Option<GpuDriver>) {
        let (kind_attribute, gpu_kind) = match self.whole {
            Some(WholeEntry { attribute, value }) => (leak_attribute(Some(attribute)), leak(value)),
            None => (None, ""),
        };
        let whole = GpuDriver {
            driver: leak(self.driver.0),
            class: leak(self.class),
            pci_vendor: self.pci_vendor.0,
            kind_attribute,
            gpu_kind,
            uuid_attribute: leak_attribute(self.uuid_attribute),
            address_attribute: self.address.attribute(),
            is_named_by_address: self.address == AddressSource::DeviceName,
            numa_attribute: leak_attribute(self.numa_attribute),
            extended_resources: leak_all(self.extended_resources),
            partial_resources: leak_all(self.partial_resources),
            part: None,
        };
        let part = self.part.map(|part| GpuDriver {
            class: leak(part.class),
            gpu_kind: leak(part.value),
            uuid_attribute: None,
            address_attribute: leak_attribute(part.address_attribute),
            partial_resources: &[],
            part: Some(Part {
                profile_attribute: leak(part.profile_attribute.0),
                profile_resources: part.profile_resources.map(leak),
            }),
            ..whole
        });
        (whole, part)
    }
}

impl NicEntry {
    /// Checks what one field cannot say.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        if self.classes.is_empty() { Err(FieldError::NoClasses) } else { Ok(()) }
    }

    /// The driver. It is never freed.
    pub(super) fn leak(self) -> NicDriver {
        let rdma = match self.rdma {
            None => Rdma::ByClass,
            Some(RdmaEntry { attribute, values }) if values.is_empty() => {
                Rdma::True(leak(attribute.0))
            }
            Some(RdmaEntry { attribute, values }) => {
                Rdma::OneOf(leak(attribute.0), leak_all(values))
            }
        };
        NicDriver {
            driver: leak(self.driver.0),
            classes: leak_all(self.classes),
            rdma,
            address_attribute: self.address.attribute(),
            port_attributes: leak_all(self.port_attribute.into_iter().map(|it| it.0).collect()),
            interface_attribute: leak_attribute(self.interface_attribute),
            is_named_by_address: self.address == AddressSource::DeviceName,
            graph_name: self.address.graph_name(),
            has_roles: false,
        }
    }
}
