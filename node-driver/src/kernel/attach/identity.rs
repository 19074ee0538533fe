//! Finds a claim's interface by what the kernel reports about it, never by a name that a
//! pod can change. Pure.

use crate::facts::network::kernel::kind;
use crate::kernel::attach::enter::Indices;
use crate::prepare::host_link::{HostLink, LinkIdentity};
use crate::prepare::plan::{MARK, PlannedLink};
use cluster_model::network_config::MacAddress;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

/// The kind of IP over InfiniBand, the only one whose children have a mark.
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
    let is_it = |it: &LinkAttribute| matches!(it, LinkAttribute::IfAlias(text) if text == alias);
    link.attributes.iter().any(is_it)
}

/// Finds the host's interface in the host's namespace. An interface without a device is
/// identified by its kind and its index or name, because the host controls names there.
pub(super) fn at_home<'l>(links: &'l [LinkMessage], host: &HostLink) -> Option<&'l LinkMessage> {
    let has_name = |link: &&LinkMessage| name_of(link) == host.name;
    let Some(identity) = &host.identity else {
        let is_parent = |link: &&LinkMessage| identity_of_parent(link, host);
        return links.iter().find(is_parent).or_else(|| links.iter().find(has_name));
    };
    let has_index = |link: &&LinkMessage| link.header.index == identity.index;
    let candidates = || links.iter().filter(|link| identity.is(&self::identity(link)));
    let nearest = candidates().find(has_index).or_else(|| candidates().find(has_name));
    nearest.or_else(|| candidates().next().filter(|_| identity.is_of_hardware()))
}

fn identity_of_parent(link: &LinkMessage, host: &HostLink) -> bool {
    host.parent.is_some() && identity(link).parent == host.parent
}

/// Finds the claim's interface among those of the pod's namespace: by hardware and recorded
/// index, or by its first name if an earlier driver recorded no identity. A child that ends
/// with the pod is found by its name. A child with a mark is found by the mark or, if the pod
/// has removed it, by its parent interface.
pub(super) fn in_pod<'l>(
    links: &'l [LinkMessage],
    link: &PlannedLink,
    indices: &Indices,
) -> Option<&'l LinkMessage> {
    let has_name = |found: &&LinkMessage| name_of(found) == link.name.as_str();
    if let Some(mark) = &link.mark {
        let marked = links.iter().find(|found| has_alias(found, mark.as_str()));
        return marked.or_else(|| on_the_hosts(links, link));
    }
    let identity = link.host.identity.as_ref().filter(|_| link.child.is_none());
    let Some(identity) = identity else { return links.iter().find(has_name) };
    let index = indices.get(&link.name).copied();
    let has_index = |found: &&LinkMessage| Some(found.header.index) == index;
    let candidates = || links.iter().filter(|found| identity.is(&self::identity(found)));
    let by_hardware = || candidates().next().filter(|_| identity.is_of_hardware());
    candidates().find(has_index).or_else(by_hardware)
}

/// Finds an unmarked child by the index of its parent in the host's namespace, which the pod
/// cannot change. `None` if the pod has an IPoIB interface with that index, which may have
/// children of its own.
fn on_the_hosts<'l>(links: &'l [LinkMessage], link: &PlannedLink) -> Option<&'l LinkMessage> {
    let parent = link.host.identity.as_ref()?.index;
    let is_kind = |found: &&LinkMessage| identity(found).kind.as_deref() == Some(IPOIB);
    if links.iter().any(|found| found.header.index == parent && is_kind(&found)) {
        return None;
    }
    let is_on = |it: &LinkAttribute| matches!(it, LinkAttribute::Link(index) if *index == parent);
    let is_marked =
        |it: &LinkAttribute| matches!(it, LinkAttribute::IfAlias(text) if text.starts_with(MARK));
    let is_it = |found: &&LinkMessage| {
        found.attributes.iter().any(is_on) && !found.attributes.iter().any(is_marked)
    };
    links.iter().filter(is_kind).find(is_it)
}

#[cfg(test)]
mod tests;
