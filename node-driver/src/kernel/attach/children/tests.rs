//! Requests to the kernel, byte by byte, for devices that no test machine has; and which
//! interfaces are recognized as the claim's.

use super::*;
use crate::model::host_link::{HostLink, LinkIdentity};
use cluster_model::network_config::NetworkConfig;
use netlink_packet_core::Emitable;
use netlink_packet_route::link::LinkInfo;
use serde_json::json;

const MARK: &str = "dranet012345678";
/// Index of the NIC's interface.
const PARENT: u32 = 7;

fn link(child: Child, config: &serde_json::Value) -> PlannedLink {
    let host = HostLink {
        name: "ib0".into(),
        mtu: 2044,
        up: true,
        identity: LinkIdentity { index: PARENT, ..LinkIdentity::default() },
        ..HostLink::default()
    };
    let mark = Some(MARK.parse().unwrap());
    let config = NetworkConfig::parse(config).unwrap();
    PlannedLink {
        host,
        child: Some(child),
        mark,
        rate: None,
        name: "net1".parse().unwrap(),
        config,
    }
}

/// `struct rtattr` with its value, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `IFLA_LINKINFO` (18) of `IFLA_INFO_KIND` (1) and `IFLA_INFO_DATA` (2), in which
/// `IFLA_IPOIB_PKEY` is 1 and `IFLA_IPOIB_MODE` is 2 (`include/uapi/linux/if_link.h`).
#[test]
fn ipoib_is_requested_in_datagram_mode_with_its_partition() {
    let datagram = attribute(2, &0_u16.to_ne_bytes());
    let partition = attribute(1, &0x8001_u16.to_ne_bytes());
    for (config, data) in [
        (json!({"interface": {"type": "ipoib"}}), datagram.clone()),
        (
            json!({"interface": {"type": "ipoib", "pkey": "0x0001"}}),
            [datagram.clone(), partition].concat(),
        ),
    ] {
        let message = message(&link(Child::IpoIb, &config), Child::IpoIb, 7, MARK, 11);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let info = [attribute(1, b"ipoib\0"), attribute(2, &data)].concat();
        for expected in [
            attribute(18, &info),
            // `IFLA_LINK`, `IFLA_IFNAME` and `IFLA_NET_NS_FD`.
            attribute(5, &7_u32.to_ne_bytes()),
            attribute(3, format!("{MARK}\0").as_bytes()),
            attribute(28, &11_u32.to_ne_bytes()),
        ] {
            let has = bytes.windows(expected.len()).any(|window| window == expected);
            assert!(has, "{expected:?} is not in {bytes:?}");
        }
    }
}

/// An interface of this kind, on an interface with this index in another namespace.
fn found(name: &str, kind: InfoKind, alias: Option<&str>, parent: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::Link(parent));
    if kind != InfoKind::Ipoib {
        message.attributes.push(LinkAttribute::LinkNetNsId(0));
    }
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
    message.attributes.extend(alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
    message
}

#[test]
fn the_claims_child_is_recognized_among_others() {
    let planned = link(Child::IpoIb, &json!({"interface": {"type": "ipoib"}}));
    for (name, kind, alias, parent, expected) in [
        ("net1", InfoKind::Ipoib, Some(MARK), PARENT, true),
        // The kernel renames an interface whose name the host already has.
        ("dev12", InfoKind::Ipoib, Some(MARK), PARENT, true),
        // From a hook that was killed before it renamed the interface.
        (MARK, InfoKind::Ipoib, None, PARENT, true),
        ("net1", InfoKind::Ipoib, None, PARENT, false),
        ("net1", InfoKind::Ipoib, Some("rail 1"), PARENT, false),
        ("net1", InfoKind::Ipoib, Some(MARK), 8, false),
        ("ib0", InfoKind::Ipoib, None, PARENT, false),
        ("net1", InfoKind::MacVlan, Some(MARK), PARENT, false),
    ] {
        let found = found(name, kind, alias, parent);
        assert_eq!(is_the_claims(&found, &planned, Child::IpoIb), expected, "{found:?}");
    }
    for (child, kind) in [(Child::MacVlan, InfoKind::MacVlan), (Child::IpVlan, InfoKind::IpVlan)] {
        let planned = link(child, &json!({}));
        for (name, alias, parent, expected) in [
            ("net1", Some(MARK), PARENT, true),
            // Of another pod, whose namespace has the number that this pod's had.
            ("net1", Some("dranet876543210"), PARENT, false),
            ("net1", None, PARENT, false),
            ("net1", Some(MARK), 8, false),
        ] {
            let found = found(name, kind.clone(), alias, parent);
            assert_eq!(is_the_claims(&found, &planned, child), expected, "{found:?}");
        }
    }
}
