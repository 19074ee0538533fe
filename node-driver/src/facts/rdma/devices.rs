//! Converts RDMA netlink replies into devices and their ports.

use crate::kernel::nldev::{self, Nldev, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use topology_graph::{LinkLayer, PortState};

/// An RDMA device of this process's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaLink {
    /// Its name, `mlx5_0`.
    pub name: String,
    /// GUID of the node, as sysfs writes it; zeros if it is not set.
    pub node_guid: Option<String>,
    /// GUID of the whole adapter.
    pub sys_image_guid: Option<String>,
    /// The link layer of its protocol.
    pub link_layer: Option<LinkLayer>,
    /// Its ports by number.
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// Logical state.
    pub state: Option<PortState>,
    /// Its interface, if that is in this process's network namespace.
    pub netdev: Option<String>,
}

/// Reads all devices; skips the ports of those in `unread_ports`. Empty if the kernel has
/// no RDMA.
pub(crate) fn read(unread_ports: &BTreeSet<String>) -> io::Result<Vec<RdmaLink>> {
    match replies(unread_ports) {
        Err(error) if nldev::has_no_rdma(&error) => Ok(Vec::new()),
        replies => Ok(devices(&replies?)),
    }
}

fn replies(unread_ports: &BTreeSet<String>) -> io::Result<Vec<Reply>> {
    let nldev = Nldev::open()?;
    let mut replies = nldev.dump(nldev::GET, &[])?;
    let read = replies
        .iter()
        .filter(|reply| reply.text(nldev::NAME).is_none_or(|name| !unread_ports.contains(name)));
    let indices: Vec<u32> = read.filter_map(|reply| reply.number(nldev::INDEX)).collect();
    for index in indices {
        match nldev.dump(nldev::PORT_GET, &[(nldev::INDEX, index.to_ne_bytes())]) {
            Ok(ports) => replies.extend(ports),
            // The device has gone meanwhile, which a separate event announces.
            Err(error) => {
                tracing::debug!(index, %error, "Failed to read the ports of an RDMA device");
            }
        }
    }
    Ok(replies)
}

/// Parses a recorded stream of replies. Stops at the first malformed message; skips
/// messages without a device.
pub fn devices_in(bytes: &[u8]) -> Vec<RdmaLink> {
    let mut replies = Vec::new();
    // Replies before an error count.
    let _ = nldev::collect(bytes, &mut replies);
    devices(&replies)
}

/// Devices by name. Ignores ports without a device, and repeated devices.
fn devices(replies: &[Reply]) -> Vec<RdmaLink> {
    let mut by_index: BTreeMap<u32, RdmaLink> = BTreeMap::new();
    for reply in replies {
        let Some(index) = reply.number(nldev::INDEX) else { continue };
        if let Some(port) = port(reply) {
            by_index.entry(index).and_modify(|device| device.ports.push(port));
        } else if let Some(device) = device(reply) {
            by_index.entry(index).or_insert(device);
        }
    }
    let mut devices: Vec<RdmaLink> = by_index.into_values().collect();
    for device in &mut devices {
        device.ports.sort_by_key(|port| port.number);
        device.ports.dedup_by_key(|port| port.number);
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices.dedup_by(|a, b| a.name == b.name);
    devices
}

/// Parses the attributes that `fill_dev_info` writes.
fn device(reply: &Reply) -> Option<RdmaLink> {
    Some(RdmaLink {
        name: reply.text(nldev::NAME)?.to_owned(),
        node_guid: reply.long(nldev::NODE_GUID).map(guid),
        sys_image_guid: reply.long(nldev::SYS_IMAGE_GUID).filter(|guid| *guid != 0).map(guid),
        link_layer: reply.text(nldev::PROTOCOL).and_then(link_layer),
        ports: Vec::new(),
    })
}

/// Parses the attributes that `fill_port_info` writes; a reply about a device has no port
/// state.
fn port(reply: &Reply) -> Option<Port> {
    let state = reply.byte(nldev::PORT_STATE)?;
    Some(Port {
        number: reply.number(nldev::PORT)?,
        state: port_state(state),
        netdev: reply.text(nldev::NETDEV).map(str::to_owned),
    })
}

/// `enum ib_port_state`; 0 is `IB_PORT_NOP`.
fn port_state(state: u8) -> Option<PortState> {
    Some(match state {
        1 => PortState::Down,
        2 => PortState::Init,
        3 => PortState::Armed,
        4 => PortState::Active,
        5 => PortState::ActiveDefer,
        _ => return None,
    })
}

/// The protocols that `fill_dev_info` names. `usnic`, and EFA, for which it names none,
/// have no known link layer.
fn link_layer(protocol: &str) -> Option<LinkLayer> {
    match protocol {
        "ib" | "opa" => Some(LinkLayer::InfiniBand),
        "roce" | "iw" => Some(LinkLayer::Ethernet),
        _ => None,
    }
}

/// Formats a GUID as sysfs does, `b859:9f03:00a1:b2c4`.
fn guid(guid: u64) -> String {
    [48, 32, 16, 0].map(|shift| format!("{:04x}", (guid >> shift) & 0xffff)).join(":")
}
