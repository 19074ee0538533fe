//! Child interfaces on a NIC's interface, for NICs that several pods share and for NICs
//! whose own interface stays with the host: macvlan (`drivers/net/macvlan.c`), ipvlan
//! (`Documentation/networking/ipvlan.rst`) and IP over InfiniBand
//! (`Documentation/infiniband/ipoib.rst`). The NIC's own interface is not changed.
//!
//! When a pod's network namespace ends, the kernel removes macvlan and ipvlan children, but
//! moves IPoIB children to the host (`netns_refund`,
//! `drivers/infiniband/ulp/ipoib/ipoib_netlink.c`), where the driver removes them. A child is
//! removed only if it is on the claim's NIC and has the claim's mark, which is its first name and
//! later its alias. A pod can remove the alias. A macvlan or ipvlan then ends with the pod's
//! namespace. An IPoIB child would not, so the driver holds the namespace and finds the child
//! there by its parent interface before the namespace ends.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::identity::{
    has_alias, has_foreign_parent, info_kind, is_on, is_unmarked_on, kind_of, name_of,
};
use crate::kernel::attach::link::{all, inside};
use crate::kernel::attach::netns::NetNs;
use crate::model::plan::{Child, MARK, PlannedLink};
use cluster_model::network_config::{MacvlanMode, PartitionKey};
use netlink_packet_route::link::{
    InfoData, InfoIpoib, InfoKind, IpVlanMode, IpoibMode, LinkAttribute, LinkMessage, MacVlanMode,
};
use rtnetlink::{Handle, LinkIpVlan, LinkMacVlan, LinkMessageBuilder, LinkUnspec};
use rustix::fd::{AsFd, AsRawFd};

/// `EEXIST`.
const EXISTS: i32 = 17;

/// Creates the child on the host's interface with this index, directly in the pod's
/// namespace, so that the host never has it.
pub(super) async fn make(
    handle: &Handle,
    link: &PlannedLink,
    child: Child,
    parent: u32,
    pod: &NetNs,
) -> Result<(), AttachError> {
    let name = link.name.as_str();
    let first = first_name(link, parent);
    let message = message(link, child, parent, &first, pod.as_fd().as_raw_fd());
    let made = handle.link().add(message).execute().await;
    match made {
        // A child that a killed hook left behind is used.
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == EXISTS => {}
        made => made.map_err(|source| {
            let verb = format!("create {child} `{name}` on it in the pod's network namespace");
            AttachError::netlink(&link.host.name, verb, source)
        })?,
    }
    pod.run(async |handle| rename(&handle, link, &first).await)
}

/// The name under which a child is created. The kernel refuses a name that the host also has
/// (`rtnl_newlink` in `net/core/rtnetlink.c` checks there), and without a configured name the
/// child has the same name in the pod as its parent on the host.
fn first_name(link: &PlannedLink, parent: u32) -> String {
    link.mark.as_ref().map_or_else(|| format!("{MARK}-{parent}"), ToString::to_string)
}

fn message(link: &PlannedLink, child: Child, parent: u32, name: &str, pod: i32) -> LinkMessage {
    match child {
        Child::MacVlan => {
            let mode = match link.config.interface.macvlan_mode {
                None | Some(MacvlanMode::Bridge) => MacVlanMode::Bridge,
                Some(MacvlanMode::Private) => MacVlanMode::Private,
                Some(MacvlanMode::Vepa) => MacVlanMode::Vepa,
                Some(MacvlanMode::Passthru) => MacVlanMode::Passthrough,
            };
            LinkMacVlan::new(name, parent, mode).setns_by_fd(pod).build()
        }
        Child::IpVlan => LinkIpVlan::new(name, parent, IpVlanMode::L2).setns_by_fd(pod).build(),
        Child::IpoIb => {
            let partition = link.config.interface.pkey.map(PartitionKey::of_full_member);
            let mut data = vec![InfoIpoib::Mode(IpoibMode::Datagram)];
            data.extend(partition.map(InfoIpoib::Pkey));
            LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Ipoib)
                .set_info_data(InfoData::Ipoib(data))
                .name(name.to_owned())
                .link(parent)
                .setns_by_fd(pod)
                .build()
        }
    }
}

/// Renames the child to its name in the pod, and sets its mark as the alias, if it has one.
async fn rename(handle: &Handle, link: &PlannedLink, first: &str) -> Result<(), AttachError> {
    for found in all(handle).await?.iter().filter(|found| name_of(found) == first) {
        let mut message = LinkUnspec::new_with_index(found.header.index).name(link.name.as_str());
        if let Some(mark) = &link.mark {
            message = message.append_extra_attribute(LinkAttribute::IfAlias(mark.to_string()));
        }
        handle.link().set(message.build()).execute().await.map_err(|source| {
            AttachError::netlink(first, format!("name it `{}`", link.name), source)
        })?;
    }
    Ok(())
}

/// Removes the child from this namespace: the pod's, or the host's after the pod's ended.
/// `index` is the child's index, if known. Returns whether a child was removed.
pub(super) async fn remove(
    handle: &Handle,
    link: &PlannedLink,
    child: Child,
    index: Option<u32>,
) -> Result<bool, AttachError> {
    let inside = inside(handle).await?;
    let mut removed = false;
    for found in &inside {
        if !is_the_claims(found, link, child) && index != Some(found.header.index) {
            continue;
        }
        handle
            .link()
            .del(found.header.index)
            .execute()
            .await
            .map_err(|source| AttachError::netlink(name_of(found), "remove it", source))?;
        removed = true;
    }
    Ok(removed)
}

/// Whether the found interface is the claim's: its kind, its parent and its mark agree. Others
/// with the same name belong to another pod, to this pod or to the host.
fn is_the_claims(found: &LinkMessage, link: &PlannedLink, child: Child) -> bool {
    kind_of(found) == Some(info_kind(child))
        && is_on_the_nic(found, link, child)
        && has_mark(found, link)
}

/// Whether it is on the claim's NIC. An IPoIB child that the kernel moved to the host is in the
/// namespace of its parent; others have their parent in another namespace.
fn is_on_the_nic(found: &LinkMessage, link: &PlannedLink, child: Child) -> bool {
    is_on(found, link.host.identity.index) && (child == Child::IpoIb || has_foreign_parent(found))
}

/// Whether it has the claim's mark.
fn has_mark(found: &LinkMessage, link: &PlannedLink) -> bool {
    let mark = link.mark.as_ref();
    mark.is_some_and(|mark| name_of(found) == mark.as_str() || has_alias(found, mark.as_str()))
}

/// Whether an interface in the pod is the claim's child of this kind on the interface with this
/// index, also if the pod has removed the mark of a macvlan or ipvlan.
pub(super) fn is_child(found: &LinkMessage, link: &PlannedLink, child: Child, parent: u32) -> bool {
    is_the_claims(found, link, child)
        || (child != Child::IpoIb && is_unmarked_on(found, child, parent))
}

#[cfg(test)]
mod tests;
