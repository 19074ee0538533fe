//! What a driver publishes of a device, decoded: the only place that knows which attribute says what a device
//! is, where it is, and whether a new pod can get it.

use crate::gpu_drivers::{self, GpuDriver};
use crate::names::{self, LATE_PLACE, PORT_ACTIVE, attribute};
use crate::nic_drivers::{self, GraphName, NameSource, NicDriver, Rdma};
use dra_allocator::device::DeviceTaint;
use dra_allocator::{AttributeValue, Device, DeviceId, Inventory};
use k8s_openapi::api::resource::v1;
use k8s_openapi::jiff::Timestamp;
use topology_graph::{NicRole, PciAddress, Topology};

/// The taint of a NIC without an active port (`publication/src/health.rs`).
const PORT_DOWN: &str = "dranet.io/port-down";

/// A taint, and when it was added if that is known.
pub type TimedTaint = (DeviceTaint, Option<Timestamp>);

/// What a published device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A whole GPU of a known driver.
    Gpu,
    /// A part of a GPU of a known driver, such as a MIG device.
    Part,
    /// A NIC of a known driver.
    Nic,
    /// A place: it stands for any NIC of its node, which is chosen when the pod starts.
    Place,
    /// Anything else, such as a device of an unknown driver, or an interface without a device.
    Other,
}

impl Role {
    /// Returns true for a whole GPU.
    pub fn is_gpu(self) -> bool {
        self == Self::Gpu
    }

    /// Returns true for a NIC, and for a place, which stands for one.
    pub fn is_nic(self) -> bool {
        matches!(self, Self::Nic | Self::Place)
    }
}

/// A name of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicName<'a> {
    /// That of its RDMA device.
    RdmaDevice(&'a str),
    /// That of its network interface.
    Interface(&'a str),
}

/// Where devices are that publish no address: what the graph of their node says.
pub trait DeviceNames {
    /// The address of the GPU with this UUID.
    fn gpu(&self, uuid: &str) -> Option<PciAddress>;
    /// The address of the NIC with this name.
    fn nic(&self, name: NicName<'_>) -> Option<PciAddress>;
}

impl DeviceNames for Topology {
    fn gpu(&self, uuid: &str) -> Option<PciAddress> {
        let gpu = self.gpus().iter().find(|gpu| gpu.uuid.as_deref() == Some(uuid))?;
        Some(gpu.address)
    }

    fn nic(&self, name: NicName<'_>) -> Option<PciAddress> {
        let nic = self.nics().iter().find(|nic| match name {
            NicName::RdmaDevice(name) => nic.rdma_device.as_deref() == Some(name),
            NicName::Interface(name) => nic.netdevs.iter().any(|netdev| netdev == name),
        })?;
        Some(nic.address)
    }
}

/// Why no new pod gets a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble<'d> {
    /// Its port is not active.
    PortDown {
        /// The state of the port, if it is published.
        state: Option<&'d str>,
        /// The taint that says so.
        taint: Option<TimedTaint>,
    },
    /// Its PCIe link is slower or narrower than possible.
    Degraded,
    /// A taint keeps pods away.
    Tainted(TimedTaint),
}

impl Trouble<'_> {
    /// Returns true if the device carries less than it could.
    pub fn is_of_link(&self) -> bool {
        !matches!(self, Self::Tainted(_))
    }
}

/// A device of a `ResourceSlice`, in the form of the API or of the allocator.
pub trait PublishedDevice {
    /// The name of its driver.
    fn driver(&self) -> &str;
    /// Its name.
    fn name(&self) -> &str;
    /// The value of a string attribute with this fully qualified name.
    fn text(&self, attribute: &str) -> Option<&str>;
    /// Returns true if a boolean attribute exists and is true.
    fn is_true(&self, attribute: &str) -> bool;
    /// Its taints.
    fn timed_taints(&self) -> impl Iterator<Item = TimedTaint>;

    /// What it is.
    fn role(&self) -> Role {
        if let Some(known) = nic_drivers::by_name(self.driver()) {
            // Other drivers also publish interfaces without a device.
            if !known.is_ours() && self.graph_name().is_none() && self.address().is_none() {
                return Role::Other;
            }
            return if self.is_true(attribute::LATE_BINDING) { Role::Place } else { Role::Nic };
        }
        match gpu_drivers::by_name(self.driver()) {
            Some(gpu) if gpu.is_whole(self) => Role::Gpu,
            Some(_) => Role::Part,
            None => Role::Other,
        }
    }

    /// Its PCI address as its driver publishes it; of a part, that of its GPU.
    fn address(&self) -> Option<PciAddress> {
        self.published_address().or_else(|| {
            let driver = self.driver();
            let is_in_name = gpu_drivers::by_name(driver).is_some_and(|it| it.is_named_by_address)
                || nic_drivers::by_name(driver).is_some_and(|it| it.is_named_by_address);
            if is_in_name { address_in_name(self.name()) } else { None }
        })
    }

    /// Its PCI address. If its driver does not publish it, the graph of its node has it by the UUID of a GPU,
    /// or by the RDMA device or the interface of a NIC.
    fn address_by(&self, names: &impl DeviceNames) -> Option<PciAddress> {
        self.address().or_else(|| match self.graph_name() {
            Some(name) => names.nic(name),
            None => names.gpu(self.uuid()?),
        })
    }

    /// Its PCI address from its attributes: one by which a claim can select it.
    fn published_address(&self) -> Option<PciAddress> {
        self.address_attribute()?.1.parse().ok()
    }

    /// The attribute with its PCI address, and the value: the standard one, upstream DRANET's, which drivers
    /// of other devices such as CPUs have too, or else the one that the entry of its driver names.
    fn address_attribute(&self) -> Option<(&'static str, &str)> {
        let read = |name| Some((name, self.text(name)?));
        read(attribute::PCI_BUS_ID)
            .or_else(|| read(attribute::dranet::PCI_ADDRESS))
            .or_else(|| own_address_attributes(self.driver()).find_map(read))
    }

    /// The UUID of a GPU.
    fn uuid(&self) -> Option<&str> {
        self.text(gpu_drivers::by_name(self.driver())?.uuid_attribute?)
    }

    /// The name by which the graph of its node knows a NIC, if its driver publishes one.
    fn graph_name(&self) -> Option<NicName<'_>> {
        let known = nic_drivers::by_name(self.driver())?.graph_name?;
        let (GraphName::RdmaDevice(source) | GraphName::Interface(source)) = known;
        let name = match source {
            NameSource::Device => self.name(),
            NameSource::Attribute(attribute) => self.text(attribute)?,
        };
        Some(match known {
            GraphName::RdmaDevice(_) => NicName::RdmaDevice(name),
            GraphName::Interface(_) => NicName::Interface(name),
        })
    }

    /// What a NIC is for, if its driver publishes it.
    fn published_nic_role(&self) -> Option<NicRole> {
        self.text(attribute::ROLE)?.parse().ok()
    }

    /// What a NIC is for. A NIC without a role, such as one of upstream's driver, counts as a compute NIC,
    /// since a claim cannot tell it from one.
    fn nic_role(&self) -> NicRole {
        self.published_nic_role().unwrap_or(NicRole::Compute)
    }

    /// What a NIC is for: as its driver publishes it, or else as the graph of its node says at this address.
    fn nic_role_in(&self, graph: Option<&Topology>, address: Option<PciAddress>) -> NicRole {
        let driver = nic_drivers::by_name(self.driver());
        if driver.is_none_or(|driver| driver.has_roles) {
            return self.nic_role();
        }
        let known = address.zip(graph).and_then(|(address, graph)| graph.nic_role(address));
        known.unwrap_or(NicRole::Compute)
    }

    /// Returns true for a NIC that can do RDMA, as far as its driver says.
    fn has_rdma(&self) -> bool {
        nic_drivers::by_name(self.driver()).is_some_and(|driver| driver.is_rdma(self))
    }

    /// Why no new pod gets the device; `None` if one can get it.
    fn trouble(&self) -> Option<Trouble<'_>> {
        let state = self.text(attribute::PORT_STATE).filter(|state| !is_active(state));
        let mut down = self.timed_taints().filter(|(taint, _)| *taint.key == *PORT_DOWN);
        let down = down.find(|(taint, _)| state.is_some() || taint.prevents_allocation());
        if state.is_some() || down.is_some() {
            return Some(Trouble::PortDown { state, taint: down });
        }
        if self.is_true(attribute::DEGRADED) {
            return Some(Trouble::Degraded);
        }
        self.timed_taints().find(|(taint, _)| taint.prevents_allocation()).map(Trouble::Tainted)
    }
}

/// Makes a device of an inventory one without [`trouble`](PublishedDevice::trouble): it has no taint, its
/// port is active and its PCIe link is not degraded.
pub(crate) fn recover(inventory: &mut Inventory, device: &DeviceId) {
    let active = AttributeValue::String(PORT_ACTIVE.into());
    let values =
        [(attribute::PORT_STATE, active), (attribute::DEGRADED, AttributeValue::Bool(false))];
    inventory.suppose(device, &values);
}

/// The same for a device in the form of the API.
pub fn recovered(mut device: v1::Device) -> v1::Device {
    device.taints = None;
    let attributes = device.attributes.iter_mut().flatten();
    for (name, value) in attributes {
        match name.as_str() {
            attribute::PORT_STATE => value.string = Some(PORT_ACTIVE.to_owned()),
            attribute::DEGRADED => value.bool = Some(false),
            _ => {}
        }
    }
    device
}

impl PublishedDevice for Device {
    fn driver(&self) -> &str {
        &self.id().driver
    }

    fn name(&self) -> &str {
        &self.id().device
    }

    fn text(&self, attribute: &str) -> Option<&str> {
        match self.attribute(attribute)? {
            AttributeValue::String(text) => Some(text),
            _ => None,
        }
    }

    fn is_true(&self, attribute: &str) -> bool {
        matches!(self.attribute(attribute), Some(AttributeValue::Bool(true)))
    }

    fn timed_taints(&self) -> impl Iterator<Item = TimedTaint> {
        Self::timed_taints(self).map(|(taint, since)| (taint.clone(), since))
    }
}

/// A device in the form of the API.
#[derive(Clone, Copy, Debug)]
pub struct WireDevice<'d> {
    /// The name of its driver.
    pub driver: &'d str,
    /// The device.
    pub device: &'d v1::Device,
}

impl<'d> WireDevice<'d> {
    /// A device of this project's driver.
    pub fn of_ours(device: &'d v1::Device) -> Self {
        Self { driver: names::DRIVER, device }
    }

    /// An attribute by its qualified name, or by its plain name, which means the same in a slice of this
    /// driver.
    fn attribute(&self, name: &str) -> Option<&'d v1::DeviceAttribute> {
        let attributes = self.device.attributes.as_ref()?;
        let plain = names::split(name).filter(|(domain, _)| *domain == self.driver);
        attributes.get(name).or_else(|| attributes.get(plain?.1))
    }
}

impl PublishedDevice for WireDevice<'_> {
    fn driver(&self) -> &str {
        self.driver
    }

    fn name(&self) -> &str {
        &self.device.name
    }

    fn text(&self, attribute: &str) -> Option<&str> {
        self.attribute(attribute)?.string.as_deref()
    }

    fn is_true(&self, attribute: &str) -> bool {
        self.attribute(attribute).is_some_and(|value| value.bool == Some(true))
    }

    fn timed_taints(&self) -> impl Iterator<Item = TimedTaint> {
        self.device.taints.iter().flatten().map(|taint| {
            let value = taint.value.as_deref().unwrap_or_default().into();
            let (key, effect) = (taint.key.as_str().into(), taint.effect.as_str().into());
            (DeviceTaint { key, value, effect }, taint.time_added.as_ref().map(|time| time.0))
        })
    }
}

impl GpuDriver {
    /// Returns true if the entry describes this device of its driver: a whole GPU, or a part of one. Both
    /// share the address.
    pub fn is_whole(&self, device: &(impl PublishedDevice + ?Sized)) -> bool {
        self.kind_attribute.is_none_or(|name| device.text(name) == Some(self.gpu_kind))
    }
}

impl NicDriver {
    /// Whether a device of this driver can do RDMA.
    pub fn is_rdma(&self, nic: &(impl PublishedDevice + ?Sized)) -> bool {
        match self.rdma {
            Rdma::True(name) => nic.is_true(name),
            Rdma::OneOf(name, values) => nic.text(name).is_some_and(|it| values.contains(&it)),
            Rdma::ByClass => true,
        }
    }
}

/// The attributes that the entries of a driver name: of its GPUs, their parts, and its NICs.
fn own_address_attributes(driver: &str) -> impl Iterator<Item = &'static str> {
    let parts = gpu_drivers::parts().iter().filter(move |part| *part.driver == *driver);
    let gpus = gpu_drivers::by_name(driver).into_iter().chain(parts);
    let nic = nic_drivers::by_name(driver).and_then(|nic| nic.address_attribute);
    gpus.filter_map(|gpu| gpu.address_attribute).chain(nic)
}

/// Returns true if a port in this state carries traffic.
pub fn is_active(state: &str) -> bool {
    state == PORT_ACTIVE
}

/// Returns true if a device of this project's driver with this name is a place.
pub fn is_place(device: &str) -> bool {
    device.strip_prefix(LATE_PLACE).is_some_and(|number| number.parse::<u16>().is_ok())
}

/// The PCI address with which the name of a device begins: `0000-4d-00-0-0x1060`, or with a kind
/// before it, `pci-0000-4d-00-0`. Names have no colons and dots.
pub fn address_in_name(name: &str) -> Option<PciAddress> {
    let name = name.strip_prefix("pci-").unwrap_or(name);
    let mut parts = name.split('-');
    let (domain, bus) = (parts.next()?, parts.next()?);
    let (slot, function) = (parts.next()?, parts.next()?);
    format!("{domain}:{bus}:{slot}.{function}").parse().ok()
}

#[cfg(test)]
mod tests;
