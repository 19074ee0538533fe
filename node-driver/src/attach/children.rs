//! Interfaces that are made on a NIC's for a pod, where several pods share the NIC:
//! macvlan (`drivers/net/macvlan.c`) and ipvlan (`Documentation/networking/ipvlan.rst`).
//! The NIC's own interface stays with the host, untouched.

use crate::attach::AttachError;
use crate::attach::leave::Returned;
use crate::attach::link::by_name;
use crate::attach::netns::NetNs;
use crate::prepare::plan::{Child, PlannedLink};
use netlink_packet_route::link::{
    InfoKind, IpVlanMode, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode,
};
use rtnetlink::{Handle, LinkIpVlan, LinkMacVlan};
use rustix::fd::{AsFd, AsRawFd};

/// Makes it in the pod's namespace at once, so that the host never has it. One that is
/// there is left alone.
pub(super) fn make(
    link: &PlannedLink,
    child: Child,
    host: &NetNs,
    pod: &NetNs,
) -> Result<(), AttachError> {
    let name = link.name.as_str();
    let inside = pod.run(async |handle| by_name(&handle, name).await)?;
    host.run(async |handle| {
        let parent = by_name(&handle, &link.host.name).await?;
        let parent = parent.ok_or_else(|| AttachError::Gone { link: link.host.name.clone() })?;
        let index = parent.header.index;
        match inside {
            Some(found) if is_child(&found, child, index) => Ok(()),
            Some(_) => Err(AttachError::NameTaken { name: link.name.clone() }),
            None => add(&handle, link, child, index, pod).await,
        }
    })
}

async fn add(
    handle: &Handle,
    link: &PlannedLink,
    child: Child,
    parent: u32,
    pod: &NetNs,
) -> Result<(), AttachError> {
    let (name, fd) = (link.name.as_str(), pod.as_fd().as_raw_fd());
    let message = match child {
        Child::MacVlan => {
            LinkMacVlan::new(name, parent, MacVlanMode::Bridge).setns_by_fd(fd).build()
        }
        Child::IpVlan => LinkIpVlan::new(name, parent, IpVlanMode::L2).setns_by_fd(fd).build(),
    };
    let wrap = |source| {
        let verb = format!("make {child} `{name}` on it in the pod's network namespace");
        AttachError::netlink(&link.host.name, verb, source)
    };
    handle.link().add(message).execute().await.map_err(wrap)
}

/// Removes it, where the pod's namespace still has it.
pub(super) fn remove(
    link: &PlannedLink,
    child: Child,
    pod: &NetNs,
) -> Result<Returned, AttachError> {
    let name = link.name.as_str();
    pod.run(async |handle| {
        let found = by_name(&handle, name).await?;
        // Another of that name is the pod's own.
        let Some(found) = found.filter(|found| kind_of(found) == Some(info_kind(child))) else {
            return Ok(Returned::Removed);
        };
        let deleted = handle.link().del(found.header.index).execute().await;
        let wrap = |source| AttachError::netlink(name, "remove it", source);
        deleted.map(|()| Returned::Removed).map_err(wrap)
    })
}

fn is_child(found: &LinkMessage, child: Child, parent: u32) -> bool {
    let is_parent = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::Link(index) if *index == parent);
    kind_of(found) == Some(info_kind(child)) && found.attributes.iter().any(is_parent)
}

fn info_kind(child: Child) -> InfoKind {
    match child {
        Child::MacVlan => InfoKind::MacVlan,
        Child::IpVlan => InfoKind::IpVlan,
    }
}

fn kind_of(link: &LinkMessage) -> Option<InfoKind> {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.clone()),
        _ => None,
    })
}
