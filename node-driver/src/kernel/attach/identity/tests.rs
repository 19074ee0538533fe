//! An interface, and others that share its name, index or kind.

use super::*;
use crate::model::plan::Child;
use cluster_model::network_config::{LinkName, NetworkConfig};
use netlink_packet_route::link::{InfoKind, LinkInfo};

/// An interface with this index and name: of a device, or one end of a veth pair.
fn link(index: u32, name: &str, parent: Option<&str>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    if let Some(parent) = parent {
        let address = vec![0, 0, 0, 0, 0, u8::try_from(parent.len()).unwrap()];
        link.attributes.push(LinkAttribute::PermAddress(address));
        link.attributes.push(LinkAttribute::ParentDevName(parent.to_owned()));
    } else {
        let info = LinkInfo::Kind(InfoKind::Veth);
        link.attributes.push(LinkAttribute::LinkInfo(vec![info]));
    }
    link
}

fn host(of: &LinkMessage) -> HostLink {
    serde_json::from_value(serde_json::json!({
        "name": name_of(of), "parent": identity(of).parent, "hardwareAddr": null, "mtu": 1500,
        "up": true, "sizes": {}, "addresses": [], "routes": [], "identity": identity(of),
    }))
    .unwrap()
}

/// The index of the claim's interface among these. Its first name in the pod was `net1`.
fn claims(links: &[LinkMessage], host: HostLink, index: Option<u32>) -> Option<u32> {
    let name: LinkName = "net1".parse().unwrap();
    let indices = index.map(|index| (name.clone(), index)).into_iter().collect();
    let link = PlannedLink {
        host,
        child: None,
        mark: None,
        rate: None,
        name,
        config: NetworkConfig::default(),
    };
    found(in_pod(links, &link, &indices))
}

fn found(link: Option<&LinkMessage>) -> Option<u32> {
    link.map(|link| link.header.index)
}

#[test]
fn in_a_pod_links_are_found_by_hardware_or_index_not_name() {
    let function = link(7, "rail0", Some("0101:00:00.0"));
    let pair = link(7, "rail0", None);
    for (what, of, there, index, expected) in [
        ("as it went in", &function, link(7, "net1", Some("0101:00:00.0")), Some(7), Some(7)),
        ("renamed", &function, link(7, "other", Some("0101:00:00.0")), Some(7), Some(7)),
        ("another index", &function, link(9, "net1", Some("0101:00:00.0")), Some(7), Some(9)),
        ("no index known", &function, link(9, "net1", Some("0101:00:00.0")), None, Some(9)),
        ("another NIC", &function, link(7, "net1", Some("0101:00:00.10")), Some(7), None),
        ("made by the pod", &function, link(7, "net1", None), Some(7), None),
        ("a pair, renamed", &pair, link(7, "other", None), Some(7), Some(7)),
        ("a pair that the pod made", &pair, link(9, "net1", None), Some(7), None),
        ("a pair of which nothing is known", &pair, link(7, "net1", None), None, None),
        ("a NIC in its place", &pair, link(7, "net1", Some("0101:00:00.0")), Some(7), None),
    ] {
        assert_eq!(claims(&[there], host(of), index), expected, "{what}");
    }
}

#[test]
fn on_the_host_links_are_found_by_hardware_or_kind_and_name() {
    let function = link(7, "rail0", Some("0101:00:00.0"));
    let pair = link(7, "rail0", None);
    for (what, of, there, expected) in [
        ("renamed by udev", &function, link(7, "enp1", Some("0101:00:00.0")), Some(7)),
        ("come back", &function, link(12, "net1", Some("0101:00:00.0")), Some(12)),
        ("another NIC of its name", &function, link(7, "rail0", Some("0101:00:00.10")), None),
        ("a pair, come back", &pair, link(12, "rail0", None), Some(12)),
        ("a pair, renamed", &pair, link(7, "other", None), Some(7)),
        ("another pair", &pair, link(12, "other", None), None),
        ("a NIC of its name", &pair, link(7, "rail0", Some("0101:00:00.0")), None),
    ] {
        assert_eq!(found(at_home(&[there], &host(of))), expected, "{what}");
    }
    let two = [link(8, "rail1", Some("0101:00:00.0")), link(7, "rail0", Some("0101:00:00.0"))];
    assert_eq!(found(at_home(&two, &host(&function))), Some(7), "one port of two");
}

/// It was unbound and bound under a pod, and its driver has given it another address.
#[test]
fn a_virtual_function_is_found_by_its_place() {
    let function = link(7, "rail0", Some("0101:00:00.1"));
    let mut planned = host(&function);
    planned.identity.permanent = None;
    let mut again = link(12, "eth1", Some("0101:00:00.1"));
    again.attributes[1] = LinkAttribute::PermAddress(vec![2, 9, 9, 9, 9, 9]);
    assert_eq!(found(at_home(std::slice::from_ref(&again), &planned)), Some(12));
    assert_eq!(claims(std::slice::from_ref(&again), planned, Some(7)), Some(12));
    assert_eq!(found(at_home(&[again], &host(&function))), None, "a physical one is another");
}

/// An IPoIB child on the interface with this index.
fn child(index: u32, on: u32, alias: Option<&str>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ipoib)]));
    link.attributes.push(LinkAttribute::Link(on));
    link.attributes.extend(alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
    link
}

/// A pod can remove or change the alias, but not the parent interface.
#[test]
fn a_child_without_its_mark_is_found_by_its_parent() {
    let planned = PlannedLink {
        host: host(&link(7, "ib0", Some("0101:00:00.0"))),
        child: Some(Child::IpoIb),
        mark: Some("dranet012345678".parse().unwrap()),
        rate: None,
        name: "net1".parse().unwrap(),
        config: NetworkConfig::default(),
    };
    let marked = |index, on| child(index, on, Some("dranet012345678"));
    for (what, links, expected) in [
        ("marked", vec![child(3, 7, None), marked(4, 7)], Some(4)),
        ("its mark removed", vec![child(4, 7, None)], Some(4)),
        ("its mark changed", vec![child(4, 7, Some("mine"))], Some(4)),
        ("another claim's", vec![child(4, 7, Some("dranet876543210"))], None),
        ("on another NIC", vec![child(4, 8, None)], None),
        ("the pod's own, on its own", vec![child(7, 7, None), child(4, 7, None)], None),
        ("of another kind", vec![link(4, "net1", None)], None),
    ] {
        assert_eq!(found(in_pod(&links, &planned, &Indices::new())), expected, "{what}");
    }
}
