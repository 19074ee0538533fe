//! RDMA devices, their ports and their character devices, from
//! `class/infiniband*` (`Documentation/ABI/stable/sysfs-class-infiniband`).

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Tree, pci_parent};
use crate::SubnetPrefix;
use crate::address::PciAddress;
use crate::snapshot::{LinkLayer, PortState, RdmaDevice, RdmaPort, scalable_function};

const DEVICES: &str = "class/infiniband";
const VERBS: &str = "class/infiniband_verbs";
const MANAGEMENT: &str = "class/infiniband_mad";

/// Character devices by RDMA device.
type CharDevices = BTreeMap<String, Vec<String>>;

/// All RDMA devices; without ports for those in `unread_ports`.
pub(super) fn devices(sys: &mut Tree, unread_ports: &BTreeSet<String>) -> Vec<RdmaDevice> {
    let verbs = char_devices(sys, VERBS);
    let management = char_devices(sys, MANAGEMENT);
    let names = sys.names(DEVICES);
    names
        .into_iter()
        .map(|name| {
            let mut device = device(sys, name, &verbs, &management);
            if !unread_ports.contains(&device.name) {
                device.ports = ports(sys, &format!("{DEVICES}/{}/ports", device.name));
            }
            device
        })
        .collect()
}

/// Reads a device without its ports.
fn device(sys: &mut Tree, name: String, verbs: &CharDevices, mad: &CharDevices) -> RdmaDevice {
    let path = format!("{DEVICES}/{name}");
    let place = sys.link(&path).or_else(|| sys.link(&format!("{path}/device")));
    RdmaDevice {
        pci: place.as_deref().and_then(pci_parent).or_else(|| soft_parent(sys, &path)),
        part: place.as_deref().and_then(scalable_function).map(str::to_owned),
        node_guid: sys.text(&format!("{path}/node_guid")).filter(|guid| !guid.is_empty()),
        sys_image_guid: guid(sys, &format!("{path}/sys_image_guid")),
        ports: Vec::new(),
        uverbs: owned_by(&name, verbs, "uverbs"),
        umad: owned_by(&name, mad, "umad"),
        issm: owned_by(&name, mad, "issm"),
        name,
    }
}

/// The character devices of an RDMA device whose names begin so.
fn owned_by(name: &str, devices: &CharDevices, prefix: &str) -> Vec<String> {
    let owned = devices.get(name).into_iter().flatten();
    owned.filter(|device| device.starts_with(prefix)).cloned().collect()
}

/// The PCI function of the interface below a soft RDMA device: such a device has no parent, but
/// names the interface (`drivers/infiniband/sw/rxe`).
fn soft_parent(sys: &mut Tree, path: &str) -> Option<PciAddress> {
    let interface = sys.text(&format!("{path}/parent"))?;
    pci_parent(&sys.link(&format!("class/net/{interface}"))?)
}

fn char_devices(sys: &mut Tree, class: &str) -> CharDevices {
    let mut devices = CharDevices::new();
    for name in sys.names(class) {
        // `abi_version` is a file in the same directory and has no owner.
        if let Some(owner) = sys.text(&format!("{class}/{name}/ibdev")) {
            devices.entry(owner).or_default().push(name);
        }
    }
    devices
}

fn ports(sys: &mut Tree, path: &str) -> Vec<RdmaPort> {
    let mut numbers: Vec<u32> =
        sys.names(path).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| port(sys, path, number)).collect()
}

fn port(sys: &mut Tree, ports: &str, number: u32) -> RdmaPort {
    let link_layer = link_layer(sys, &format!("{ports}/{number}/link_layer"));
    let is_infiniband = link_layer == Some(LinkLayer::InfiniBand);
    // On other ports the GIDs are IP addresses.
    let gid = is_infiniband.then(|| sys.text(&format!("{ports}/{number}/gids/0"))).flatten();
    RdmaPort {
        number,
        state: sys.parsed(&format!("{ports}/{number}/state"), port_state),
        rate_megabits: sys.parsed(&format!("{ports}/{number}/rate"), rate),
        link_layer,
        subnet: gid.as_deref().and_then(SubnetPrefix::of_gid),
    }
}

/// A GUID of zeros is not set.
fn guid(sys: &mut Tree, path: &str) -> Option<String> {
    sys.text(path).filter(|guid| guid.bytes().any(|byte| !matches!(byte, b'0' | b':')))
}

/// Parses `4: ACTIVE`.
fn port_state(text: &str) -> Option<PortState> {
    Some(match text.split(':').next()? {
        "1" => PortState::Down,
        "2" => PortState::Init,
        "3" => PortState::Armed,
        "4" => PortState::Active,
        "5" => PortState::ActiveDefer,
        _ => return None,
    })
}

/// Parses `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)`.
fn rate(text: &str) -> Option<u32> {
    let number = text.split_once(" Gb/sec")?.0;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u32>().ok()?.checked_mul(1_000)?;
    let tenths = tenths.parse::<u32>().ok().filter(|tenths| *tenths < 10)?;
    whole.checked_add(tenths * 100)
}

/// The kernel reports `Unknown` for a fabric that is neither (EFA).
fn link_layer(sys: &mut Tree, path: &str) -> Option<LinkLayer> {
    let text = sys.parsed(path, |text| {
        matches!(text, "InfiniBand" | "Ethernet" | "Unknown").then(|| text.to_owned())
    })?;
    match text.as_str() {
        "InfiniBand" => Some(LinkLayer::InfiniBand),
        "Ethernet" => Some(LinkLayer::Ethernet),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_megabits() {
        for (text, expected) in [
            ("400 Gb/sec (4X NDR)", Some(400_000)),
            ("2.5 Gb/sec (1X SDR)", Some(2_500)),
            ("5000000000 Gb/sec", None),
            ("fast", None),
        ] {
            assert_eq!(rate(text), expected, "{text}");
        }
    }
}
