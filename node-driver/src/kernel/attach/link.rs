//! Finds and changes single interfaces by rtnetlink. Follows `rtnetlink(7)`.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::dump::{dump, dump_each};
use crate::model::host_link::SegmentSizes;
use cluster_model::network_config::MacAddress;
use futures::TryStreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use rustix::fd::{AsFd, AsRawFd};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alternative names of a pod's interfaces that are kept, of up to 127 bytes each.
const NAMES_MAX: usize = 4_096;
/// `ENODEV`.
const NO_DEVICE: i32 = 19;

/// The interface of this name.
pub(super) async fn by_name(
    handle: &Handle,
    name: &str,
) -> Result<Option<LinkMessage>, AttachError> {
    let found = handle.link().get().match_name(name.to_owned()).execute().try_next().await;
    match found {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_DEVICE => {
            Ok(None)
        }
        other => other.map_err(|source| AttachError::netlink(name, "look it up", source)),
    }
}

/// The interface of this index.
pub(super) async fn by_index(
    handle: &Handle,
    index: u32,
) -> Result<Option<LinkMessage>, AttachError> {
    let found = handle.link().get().match_index(index).execute().try_next().await;
    match found {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_DEVICE => {
            Ok(None)
        }
        other => other.map_err(|source| AttachError::netlink("any", "look it up", source)),
    }
}

/// All interfaces of a namespace.
pub(super) async fn all(handle: &Handle) -> Result<Vec<LinkMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "look it up", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        })
        .collect())
}

/// All interfaces of a pod's namespace, with only those properties by which an interface is found:
/// a pod can create thousands of interfaces, with hundreds of alternative names each.
pub(super) async fn inside(handle: &Handle) -> Result<Vec<LinkMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let names = AtomicUsize::new(0);
    dump_each(handle, request, |message| found_by(message, &names))
        .await
        .map_err(|source| AttachError::netlink("any", "look it up", source))
}

/// Counts alternative names. Those beyond [`NAMES_MAX`] are left out: where one conflicts, the kernel
/// refuses the name later.
fn found_by(message: RouteNetlinkMessage, names: &AtomicUsize) -> Option<LinkMessage> {
    let RouteNetlinkMessage::NewLink(mut link) = message else { return None };
    // Copied, since a large vector that shrinks in place leaves a gap that nothing fills.
    let mut kept = Vec::new();
    let attributes = mem::take(&mut link.attributes).into_iter();
    kept.extend(attributes.filter_map(|attribute| identifying(attribute, names)));
    kept.shrink_to_fit();
    link.attributes = kept;
    Some(link)
}

fn identifying(attribute: LinkAttribute, names: &AtomicUsize) -> Option<LinkAttribute> {
    match attribute {
        LinkAttribute::PropList(properties) => {
            let before = names.fetch_add(properties.len(), Ordering::Relaxed);
            let has_room = before + properties.len() <= NAMES_MAX;
            has_room.then_some(LinkAttribute::PropList(properties))
        }
        LinkAttribute::LinkInfo(infos) => {
            let mut kind = infos.into_iter().filter(|info| matches!(info, LinkInfo::Kind(_)));
            kind.next().map(|kind| LinkAttribute::LinkInfo(vec![kind]))
        }
        LinkAttribute::IfName(_)
        | LinkAttribute::IfAlias(_)
        | LinkAttribute::Link(_)
        | LinkAttribute::LinkNetNsId(_)
        | LinkAttribute::Address(_)
        | LinkAttribute::ParentDevName(_)
        | LinkAttribute::PermAddress(_)
        | LinkAttribute::PhysPortName(_) => Some(attribute),
        _ => None,
    }
}

/// The properties that are given, in the order in which they are set.
pub(super) fn properties(
    mtu: Option<u32>,
    address: Option<&MacAddress>,
    sizes: SegmentSizes,
) -> impl Iterator<Item = LinkAttribute> {
    let attributes = [
        mtu.map(LinkAttribute::Mtu),
        address.map(|address| LinkAttribute::Address(address.bytes().to_vec())),
        sizes.gso.map(LinkAttribute::GsoMaxSize),
        sizes.gro.map(LinkAttribute::GroMaxSize),
        sizes.gso_ipv4.map(LinkAttribute::GsoIpv4MaxSize),
        sizes.gro_ipv4.map(LinkAttribute::GroIpv4MaxSize),
    ];
    attributes.into_iter().flatten()
}

/// Builds the message that moves an interface to another namespace with this name and index;
/// the kernel chooses an index that is `None`. A single message, so that the interface never has
/// a third name.
pub(super) fn to_namespace(
    index: u32,
    to: &NetNs,
    name: &str,
    new_index: Option<u32>,
) -> LinkMessage {
    let message = LinkUnspec::new_with_index(index).setns_by_fd(to.as_fd().as_raw_fd());
    let mut message = message.name(name).build();
    let new_index = new_index.and_then(|it| i32::try_from(it).ok());
    message.attributes.extend(new_index.map(LinkAttribute::NewIfIndex));
    message
}

/// Sets the attributes that differ. Equal ones are skipped, because some drivers accept a
/// hardware address only while the interface is down. Returns the result of each that was set.
pub(super) async fn set_attributes(
    handle: &Handle,
    name: &str,
    found: &LinkMessage,
    attributes: impl Iterator<Item = LinkAttribute>,
) -> Vec<Result<(), AttachError>> {
    let mut outcomes = Vec::new();
    let mut has_set_size = false;
    for attribute in attributes {
        if found.attributes.contains(&attribute) && !(has_set_size && is_ipv4_size(&attribute)) {
            continue;
        }
        has_set_size |= is_size(&attribute);
        let verb = format!("set {attribute:?}");
        let message = LinkUnspec::new_with_index(found.header.index);
        let message = message.append_extra_attribute(attribute).build();
        let set = handle.link().set(message).execute().await;
        outcomes.push(set.map_err(|source| AttachError::netlink(name, verb, source)));
    }
    outcomes
}

fn is_size(attribute: &LinkAttribute) -> bool {
    matches!(attribute, LinkAttribute::GsoMaxSize(_) | LinkAttribute::GroMaxSize(_))
}

/// Whether the attribute is a size for IPv4. The kernel changes it together with the
/// general size if that is small (`netif_set_gso_max_size`, `net/core/dev.c`), so a value
/// that was equal before may no longer be.
fn is_ipv4_size(attribute: &LinkAttribute) -> bool {
    matches!(attribute, LinkAttribute::GsoIpv4MaxSize(_) | LinkAttribute::GroIpv4MaxSize(_))
}
