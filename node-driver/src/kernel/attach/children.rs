//! Interfaces that are made on a NIC's for a pod, where several pods share the NIC:
//! macvlan (`drivers/net/macvlan.c`) and ipvlan (`Documentation/networking/ipvlan.rst`).
//! The NIC's own interface stays with the host, untouched.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::link::by_name;
use crate::kernel::attach::netns::NetNs;
use crate::prepare::plan::{Child, PlannedLink};
use netlink_packet_route::link::{
    InfoKind, IpVlanMode, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode,
};
use rtnetlink::{Handle, LinkIpVlan, LinkMacVlan};
use rustix::fd::{AsFd, AsRawFd};

/// Makes it on the interface of this index of the host's, in the pod's namespace at
/// once, so that the host never has it.
pub(super) async fn make(
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

/// Removes it, where this namespace, the pod's, still has it.
pub(super) async fn remove(
    handle: &Handle,
    link: &PlannedLink,
    child: Child,
) -> Result<(), AttachError> {
    let name = link.name.as_str();
    let found = by_name(handle, name).await?;
    // Another of that name is the pod's own.
    let found = found.filter(|found| kind_of(found) == Some(info_kind(child)));
    let Some(found) = found else { return Ok(()) };
    let wrap = |source| AttachError::netlink(name, "remove it", source);
    handle.link().del(found.header.index).execute().await.map_err(wrap)
}

/// Whether an interface is a child of this kind on the interface of this index.
pub(super) fn is_child(found: &LinkMessage, child: Child, parent: u32) -> bool {
    let is_parent = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::Link(index) if *index == parent);
    // Another namespace's interface: what the pod made itself is on one of its own.
    let is_foreign = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    let mut attributes = found.attributes.iter();
    kind_of(found) == Some(info_kind(child))
        && found.attributes.iter().any(is_parent)
        && attributes.any(is_foreign)
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
