//! Finds a claim's interface by what the kernel reports about it, never by a name that a
//! pod can change. Pure.

use crate::kernel::network::kind;
use crate::model::host_link::{HostLink, LinkIdentity};
use crate::model::plan::{Child, MARK, PlannedLink};
use cluster_model::network_config::{LinkName, MacAddress};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage, Prop};
use std::collections::{BTreeMap, BTreeSet};

/// Indices of interfaces in the pod's namespace, by the names that they get there.
pub type Indices = BTreeMap<LinkName, u32>;

/// The kind of IP over InfiniBand.
const IPOIB: &str = "ipoib";

/// The properties that identify this interface.
pub(super) fn identity(link: &LinkMessage) -> LinkIdentity {
    let mut identity = LinkIdentity { index: link.header.index, ..LinkIdentity::default() };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::LinkInfo(infos) => identity.kind = kind(infos),
            LinkAttribute::ParentDevName(name) => identity.parent = Some(name.clone()),
            LinkAttribute::PermAddress(bytes) => identity.permanent = MacAddress::from_bytes(bytes),
            LinkAttribute::PhysPortName(name) => identity.port = Some(name.clone()),
            _ => {}
        }
    }
    identity
}

/// Its name.
pub(super) fn name_of(link: &LinkMessage) -> &str {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    name.unwrap_or_default()
}

/// Whether the interface has this alias.
pub(super) fn has_alias(link: &LinkMessage, alias: &str) -> bool {
    link.attributes.iter().any(|it| matches!(it, LinkAttribute::IfAlias(text) if text == alias))
}

/// Finds the host's interface in the host's namespace. An interface without a device is
/// identified by its kind and its index or name, because the host controls names there.
pub(super) fn at_home<'l>(links: &'l [LinkMessage], host: &HostLink) -> Option<&'l LinkMessage> {
    let identity = &host.identity;
    let nearest = candidates(links, identity)
        .find(|link| link.header.index == identity.index)
        .or_else(|| candidates(links, identity).find(|link| name_of(link) == host.name));
    nearest.or_else(|| candidates(links, identity).next().filter(|_| identity.is_of_hardware()))
}

/// The interfaces that may be this one.
fn candidates<'l>(
    links: &'l [LinkMessage],
    identity: &LinkIdentity,
) -> impl Iterator<Item = &'l LinkMessage> {
    links.iter().filter(move |link| identity.is(&self::identity(link)))
}

/// Finds the claim's interface among those of the pod's namespace, by hardware and recorded index. A
/// child is found by its mark or, if the pod has removed it, by its parent interface.
pub(super) fn in_pod<'l>(
    links: &'l [LinkMessage],
    link: &PlannedLink,
    indices: &Indices,
) -> Option<&'l LinkMessage> {
    if let Some((mark, child)) = link.mark.as_ref().zip(link.child) {
        let marked = links.iter().find(|found| has_alias(found, mark.as_str()));
        return marked.or_else(|| on_the_hosts(links, link, child));
    }
    let identity = &link.host.identity;
    let index = indices.get(&link.name).copied();
    candidates(links, identity)
        .find(|found| Some(found.header.index) == index)
        .or_else(|| candidates(links, identity).next().filter(|_| identity.is_of_hardware()))
}

/// Finds an unmarked child by the index of its parent in the host's namespace, which the pod
/// cannot change. `None` if the pod has an IPoIB interface with that index, which may have
/// children of its own.
fn on_the_hosts<'l>(
    links: &'l [LinkMessage],
    link: &PlannedLink,
    child: Child,
) -> Option<&'l LinkMessage> {
    let parent = link.host.identity.index;
    let has_parent = links.iter().any(|found| {
        found.header.index == parent && identity(found).kind.as_deref() == Some(IPOIB)
    });
    if child == Child::IpoIb && has_parent {
        return None;
    }
    links.iter().find(|found| is_unmarked_on(found, child, parent))
}

/// Whether it is a child of this kind, without any claim's mark, on the interface of the host
/// with this index. A child that the pod created has its parent in the pod.
pub(super) fn is_unmarked_on(found: &LinkMessage, child: Child, parent: u32) -> bool {
    kind_of(found) == Some(info_kind(child))
        && is_on(found, parent)
        && (child == Child::IpoIb || has_foreign_parent(found))
        && !found
            .attributes
            .iter()
            .any(|it| matches!(it, LinkAttribute::IfAlias(text) if text.starts_with(MARK)))
}

/// Whether its parent interface has this index in its namespace.
pub(super) fn is_on(found: &LinkMessage, parent: u32) -> bool {
    found.attributes.contains(&LinkAttribute::Link(parent))
}

/// Whether its parent interface is in another namespace.
pub(super) fn has_foreign_parent(found: &LinkMessage) -> bool {
    found.attributes.iter().any(|it| matches!(it, LinkAttribute::LinkNetNsId(_)))
}

/// The kernel's kind of a child.
pub(super) fn info_kind(child: Child) -> InfoKind {
    match child {
        Child::MacVlan => InfoKind::MacVlan,
        Child::IpVlan => InfoKind::IpVlan,
        Child::IpoIb => InfoKind::Ipoib,
    }
}

/// The kind of a found interface.
pub(super) fn kind_of(link: &LinkMessage) -> Option<InfoKind> {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.clone()),
        _ => None,
    })
}

/// Its alternative names.
pub(super) fn alternative_names(link: &LinkMessage) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for attribute in &link.attributes {
        let LinkAttribute::PropList(properties) = attribute else { continue };
        names.extend(properties.iter().filter_map(alternative_name));
    }
    names
}

fn alternative_name(property: &Prop) -> Option<&str> {
    if let Prop::AltIfName(name) = property { Some(name) } else { None }
}

/// Whether it has this name, also as an alternative one. In one namespace the kernel gives a name
/// to one interface only.
pub(super) fn is_called(link: &LinkMessage, name: &str) -> bool {
    name_of(link) == name || alternative_names(link).contains(name)
}

#[cfg(test)]
mod tests;
