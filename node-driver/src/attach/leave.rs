//! Back to the host, with the name, MTU, hardware address, features, addresses,
//! routes and up/down state that the plan recorded.

use crate::attach::link::{add_address, add_route, by_name, by_parent, name_of};
use crate::attach::netns::NetNs;
use crate::attach::{AttachError, children, ethtool, rdma};
use crate::prepare::host_link::HostLink;
use crate::prepare::plan::{PlannedDevice, PlannedLink};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use rustix::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// How long the kernel may take to give back the devices of a namespace that
/// has ended; it does so in its own time (`cleanup_net`).
const KERNEL_RETURN: Duration = Duration::from_secs(3);
/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// What became of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The host has it, as it was.
    Restored,
    /// It was made for the pod, and is no more.
    Removed,
    /// It is nowhere: it was unplugged, or ended with its namespace as a
    /// virtual one does.
    Gone,
}

/// From the pod's namespace to the host's, what is in it; the host has it as it was after
/// [`restore`]. A device that stays keeps no other there.
pub fn leave(devices: &[&PlannedDevice], host: &NetNs, pod: &NetNs) -> Result<(), AttachError> {
    if host.id()? == pod.id()? {
        return Ok(());
    }
    pod.run(async |handle| {
        let mut left = Ok(());
        for device in devices {
            left = left.and(leave_one(&handle, device, host).await);
        }
        left
    })
}

/// What entered, in reverse.
async fn leave_one(
    handle: &Handle,
    device: &PlannedDevice,
    host: &NetNs,
) -> Result<(), AttachError> {
    match &device.link {
        Some(PlannedLink { child: None, host: former, name, .. }) => {
            move_link(handle, name.as_str(), &former.name, host).await?;
        }
        Some(link @ PlannedLink { child: Some(child), .. }) => {
            children::remove(handle, link, *child).await?;
        }
        None => {}
    }
    let moving = device.moving_rdma();
    moving.map_or(Ok(()), |moving| rdma::send(&moving.name, host, "host's").map(drop))
}

async fn move_link(
    handle: &Handle,
    name: &str,
    former: &str,
    host: &NetNs,
) -> Result<(), AttachError> {
    let Some(found) = by_name(handle, name).await? else { return Ok(()) };
    let index = found.header.index;
    let wrap = |verb: &'static str| move |source| AttachError::netlink(name, verb, source);
    let down = LinkUnspec::new_with_index(index).nocontroller().down().build();
    handle.link().set(down).execute().await.map_err(wrap("set it down"))?;
    let message = LinkUnspec::new_with_index(index)
        .setns_by_fd(host.as_fd().as_raw_fd())
        .name(former)
        .build();
    let moved = handle.link().set(message).execute().await;
    moved.map_err(wrap("move it to the host's network namespace"))
}

/// Makes the host's interfaces what they were, wherever the kernel put them, and tells what
/// became of each. One that cannot be restored keeps no other from it.
pub fn restore(
    devices: &[&PlannedDevice],
    host: &NetNs,
    mut tell: impl FnMut(&PlannedLink, Returned) + Send,
) -> Result<(), AttachError> {
    host.run(async |handle| {
        let mut restored = Ok(());
        for link in devices.iter().filter_map(|device| device.link.as_ref()) {
            let told = restore_one(&handle, link).await.map(|returned| tell(link, returned));
            restored = restored.and(told);
        }
        restored
    })
}

async fn restore_one(handle: &Handle, link: &PlannedLink) -> Result<Returned, AttachError> {
    if link.child.is_some() {
        // It was removed, or ended with the pod's namespace.
        return Ok(Returned::Removed);
    }
    let host = &link.host;
    let Some(found) = find(handle, host).await? else { return Ok(Returned::Gone) };
    let index = found.header.index;
    set_properties(handle, host, &found).await?;
    host.ethtool.as_ref().map_or(Ok(()), |former| ethtool::restore(&host.name, former))?;
    for address in &host.addresses {
        add_address(handle, &host.name, index, address).await?;
    }
    if host.up {
        let up = LinkUnspec::new_with_index(index).up().build();
        let wrap = |source| AttachError::netlink(&host.name, "set it up", source);
        handle.link().set(up).execute().await.map_err(wrap)?;
        add_routes(handle, host, index).await?;
    }
    Ok(Returned::Restored)
}

/// The interface, under its name; a device of the machine may come late, and under
/// the name that the pod gave it.
async fn find(handle: &Handle, host: &HostLink) -> Result<Option<LinkMessage>, AttachError> {
    if let Some(found) = by_name(handle, &host.name).await? {
        return Ok(Some(found));
    }
    let Some(parent) = &host.parent else { return Ok(None) };
    let mut look = tokio::time::interval(LOOK);
    let found = tokio::time::timeout(KERNEL_RETURN, async {
        loop {
            look.tick().await;
            if let Some(found) = by_parent(handle, parent).await? {
                return Ok::<_, AttachError>(found);
            }
        }
    });
    let Ok(found) = found.await else { return Ok(None) };
    let found = found?;
    let index = found.header.index;
    let wrap = |source| AttachError::netlink(name_of(&found), "rename it", source);
    let rename = LinkUnspec::new_with_index(index).down().name(&host.name).build();
    handle.link().set(rename).execute().await.map_err(wrap)?;
    Ok(Some(found))
}

async fn set_properties(
    handle: &Handle,
    host: &HostLink,
    found: &LinkMessage,
) -> Result<(), AttachError> {
    let index = found.header.index;
    let address = host.hardware_addr.as_ref().map(|address| address.bytes().to_vec());
    let attributes = [
        Some(LinkAttribute::Mtu(host.mtu)),
        address.map(LinkAttribute::Address),
        host.sizes.gso.map(LinkAttribute::GsoMaxSize),
        host.sizes.gro.map(LinkAttribute::GroMaxSize),
        host.sizes.gso_ipv4.map(LinkAttribute::GsoIpv4MaxSize),
        host.sizes.gro_ipv4.map(LinkAttribute::GroIpv4MaxSize),
    ];
    // Some drivers take a hardware address only while down: what is so stays.
    let is_other = |attribute: &LinkAttribute| !found.attributes.contains(attribute);
    for attribute in attributes.into_iter().flatten().filter(is_other) {
        let verb = format!("set {attribute:?}");
        let message = LinkUnspec::new_with_index(index).append_extra_attribute(attribute).build();
        let set = handle.link().set(message).execute().await;
        set.map_err(|source| AttachError::netlink(&host.name, verb, source))?;
    }
    Ok(())
}

/// Direct routes first: they lead to the gateways of the others.
async fn add_routes(handle: &Handle, host: &HostLink, index: u32) -> Result<(), AttachError> {
    let (direct, via): (Vec<_>, Vec<_>) =
        host.routes.iter().partition(|route| route.gateway.is_none());
    for route in direct.into_iter().chain(via) {
        add_route(handle, &host.name, index, route).await?;
    }
    Ok(())
}
