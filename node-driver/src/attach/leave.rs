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

/// What [`attach`](super::enter::attach) moved for a device, in reverse.
pub(super) fn detach_device(
    device: &PlannedDevice,
    host: &NetNs,
    pod: &NetNs,
) -> Result<(), AttachError> {
    if let Some(link) = &device.link {
        bring_back(link, host, pod)?;
    }
    device.moving_rdma().map_or(Ok(()), |moving| rdma::bring_back(&moving.name, host, pod))
}

/// From the pod's namespace to the host's. One that is not in the pod is left
/// to [`restore`].
pub fn bring_back(link: &PlannedLink, host: &NetNs, pod: &NetNs) -> Result<Returned, AttachError> {
    if let Some(child) = link.child {
        return children::remove(link, child, pod);
    }
    let name = link.name.as_str();
    if host.id()? != pod.id()? {
        pod.run(async |handle| {
            let Some(found) = by_name(&handle, name).await? else { return Ok(()) };
            let index = found.header.index;
            let wrap = |verb: &'static str| move |source| AttachError::netlink(name, verb, source);
            let down = LinkUnspec::new_with_index(index).nocontroller().down().build();
            handle.link().set(down).execute().await.map_err(wrap("set it down"))?;
            let message = LinkUnspec::new_with_index(index)
                .setns_by_fd(host.as_fd().as_raw_fd())
                .name(&link.host.name)
                .build();
            let moved = handle.link().set(message).execute().await;
            moved.map_err(wrap("move it to the host's network namespace"))
        })?;
    }
    restore(link, host)
}

/// Makes the host's interface what it was, wherever the kernel put it.
pub fn restore(link: &PlannedLink, host: &NetNs) -> Result<Returned, AttachError> {
    if link.child.is_some() {
        // It ended with the pod's namespace.
        return Ok(Returned::Removed);
    }
    host.run(async |handle| {
        let Some(found) = find(&handle, &link.host).await? else { return Ok(Returned::Gone) };
        let index = found.header.index;
        set_properties(&handle, &link.host, &found).await?;
        let former = link.host.ethtool.as_ref();
        former.map_or(Ok(()), |former| ethtool::restore(&link.host.name, former))?;
        for address in &link.host.addresses {
            add_address(&handle, &link.host.name, index, address).await?;
        }
        if link.host.up {
            let up = LinkUnspec::new_with_index(index).up().build();
            let wrap = |source| AttachError::netlink(&link.host.name, "set it up", source);
            handle.link().set(up).execute().await.map_err(wrap)?;
            add_routes(&handle, &link.host, index).await?;
        }
        Ok(Returned::Restored)
    })
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
