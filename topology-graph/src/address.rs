//! PCI addresses and PCIe roots.
//!
//! The text forms are the kernel's own (`pci_setup_device` and `pci_register_host_bridge` in
//! `drivers/pci/probe.c`): `%04x:%02x:%02x.%d` and `pci%04x:%02x`. Domains are 32 bits wide, since
//! Intel VMD starts at `0x10000`.

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// The minimum number of digits in a domain.
const DOMAIN_DIGITS: usize = 4;
/// The number of devices on one bus.
const DEVICES: u8 = 32;
/// The number of functions of one device.
const FUNCTIONS: u8 = 8;

/// Addresses and root buses as the kernel writes them.
#[cfg(feature = "crd")]
pub(crate) const PLACE: &str =
    r"^(pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])$";

/// Address of a PCI function, `0101:00:00.0`.
///
/// ```
/// let nic: topology_graph::PciAddress = "0101:00:00.0".parse()?;
/// assert_eq!(nic.domain(), 0x101);
/// assert_eq!(nic.to_string(), "0101:00:00.0");
/// # Ok::<(), topology_graph::ParseAddressError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A root bus, `pci0008:00`; Kubernetes calls it the PCIe root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcieRoot {
    domain: u32,
    bus: u8,
}

/// A text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// The text is not `domain:bus:device.function` as the kernel writes it.
    #[error("`{0}` is not a PCI address (`0000:17:00.0`, lower-case hexadecimal)")]
    Function(String),
    /// The text is not `pcidomain:bus` as the kernel writes it.
    #[error("`{0}` is not a PCIe root (`pci0000:15`, lower-case hexadecimal)")]
    Root(String),
}

impl PciAddress {
    /// Creates an address; `None` if the device or function number is out of range.
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        (device < DEVICES && function < FUNCTIONS).then_some(Self { domain, bus, device, function })
    }

    /// The address of function 0 of the same device. With ARI, the functions of one device may have
    /// several device numbers; they are then several slots.
    #[must_use]
    pub fn slot(self) -> Self {
        Self { function: 0, ..self }
    }

    /// The PCI segment group, 32 bits.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The bus number.
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// The device number, below 32.
    pub fn device(self) -> u8 {
        self.device
    }

    /// The function number, below 8.
    pub fn function(self) -> u8 {
        self.function
    }

    /// Returns true if Kubernetes accepts the address as `resource.kubernetes.io/pciBusID`, whose
    /// helper supports four digits of domain.
    pub fn is_kubernetes_bus_id(self) -> bool {
        u16::try_from(self.domain).is_ok()
    }
}

impl PcieRoot {
    /// Creates the root whose first bus is `bus`.
    pub fn new(domain: u32, bus: u8) -> Self {
        Self { domain, bus }
    }
}

impl FromStr for PciAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_function(text).ok_or_else(|| ParseAddressError::Function(text.to_owned()))
    }
}

impl FromStr for PcieRoot {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_root(text).ok_or_else(|| ParseAddressError::Root(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl fmt::Display for PcieRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl fmt::Debug for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PcieRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serde_as_text!(PciAddress, PcieRoot);

fn parse_function(text: &str) -> Option<PciAddress> {
    let (place, function) = text.split_once('.')?;
    let mut parts = place.split(':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || function.len() != 1 {
        return None;
    }
    PciAddress::new(parse_domain(domain)?, parse_byte(bus)?, parse_byte(device)?, {
        u8::try_from(hex(function)?).ok()?
    })
}

fn parse_root(text: &str) -> Option<PcieRoot> {
    let (domain, bus) = text.strip_prefix("pci")?.split_once(':')?;
    Some(PcieRoot::new(parse_domain(domain)?, parse_byte(bus)?))
}

/// Parses at least four digits; longer numbers have no leading zero (`%04x`).
fn parse_domain(digits: &str) -> Option<u32> {
    let padded = digits.len() > DOMAIN_DIGITS && digits.starts_with('0');
    if digits.len() < DOMAIN_DIGITS || padded { None } else { hex(digits) }
}

fn parse_byte(digits: &str) -> Option<u8> {
    if digits.len() == 2 { u8::try_from(hex(digits)?).ok() } else { None }
}

/// Parses lower-case hexadecimal digits. `from_str_radix` also accepts `+1` and upper case, which
/// the kernel never writes.
fn hex(digits: &str) -> Option<u32> {
    let strict = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if strict { u32::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "0000:17:00",
            "17:00.0",
            "000:17:00.0",
            "00000:17:00.0",
            "0000:17:20.0",
            "0000:17:00.8",
            "0000:17:00.00",
            "0000:1:00.0",
            "0000:17:00.0 ",
            "0000:17:0A.0",
            "+000:17:00.0",
            "0000:+1:00.0",
            "0000:17:00:00.0",
            "123456789:17:00.0",
            "00é0:17:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>().ok(), None, "{text:?}");
        }
    }

    #[test]
    fn vmd_addresses_are_not_kubernetes_bus_ids() {
        let vmd: PciAddress = "10000:e1:00.0".parse().unwrap();
        assert_eq!(vmd.domain(), 0x1_0000);
        assert!(!vmd.is_kubernetes_bus_id());
        assert_eq!("pci10000:e0".parse::<PcieRoot>().unwrap().to_string(), "pci10000:e0");
    }

    #[test]
    fn addresses_order_by_number_not_by_text() {
        let mut sorted: Vec<PciAddress> =
            ["10000:00:00.0", "000a:00:00.0", "0101:00:00.0"].map(|t| t.parse().unwrap()).into();
        sorted.sort();
        assert_eq!(
            sorted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["000a:00:00.0", "0101:00:00.0", "10000:00:00.0"]
        );
    }

    proptest! {
        #[test]
        fn parse_inverts_display(
            domain: u32, bus: u8, device in 0..DEVICES, function in 0..FUNCTIONS
        ) {
            let address = PciAddress::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            let root = PcieRoot::new(domain, bus);
            prop_assert_eq!(root.to_string().parse(), Ok(root));
        }

        #[test]
        fn display_inverts_parse(text in "\\PC{0,16}|[0-9a-f:.]{10,14}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert_eq!(address.to_string(), text);
            }
        }
    }
}
