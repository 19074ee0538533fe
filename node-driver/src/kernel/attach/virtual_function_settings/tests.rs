//! Settings of a virtual function, byte by byte, and what is restored.

use super::*;
use netlink_packet_core::Emitable;
use serde_json::json;

fn config(value: serde_json::Value) -> VirtualFunctionConfig {
    serde_json::from_value(value).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes()[..], value].concat()
}

/// Current settings, from a driver that reports all of them.
fn now() -> VirtualFunctionConfig {
    config(json!({
        "vlan": 0, "vlanQos": 0, "trust": false, "spoofCheck": true, "minTxRate": 0,
        "maxTxRate": 1000, "linkState": "auto", "portGuid": "0e:42:a1:03:00:65:4c:3e",
    }))
}

/// `IFLA_VF_VLAN` is 2, `SPOOFCHK` 4, `LINK_STATE` 5, `RATE` 6, `TRUST` 9. Each has the
/// function's number before its values (`include/uapi/linux/if_link.h`), in
/// `IFLA_VF_INFO` (1) of `IFLA_VFINFO_LIST` (22).
#[test]
fn each_setting_is_encoded_for_the_kernel() {
    let number = 0x0e42_a103_0065_4c3f_u64.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes(number[at..at + 4].try_into().unwrap());
    let guid = [5, 0, half(0), half(4)];
    for (asked, field, kind, values) in [
        (json!({"vlan": 7, "vlanQos": 3}), "vlan", 2, &[5, 7, 3][..]),
        (json!({"vlan": 7}), "vlan", 2, &[5, 7, 0]),
        (json!({"vlan": 7, "vlanProto": "802.1q"}), "vlan", 2, &[5, 7, 0]),
        (json!({"spoofCheck": false}), "spoofCheck", 4, &[5, 0]),
        (json!({"linkState": "enable"}), "linkState", 5, &[5, 1]),
        (json!({"linkState": "disable"}), "linkState", 5, &[5, 2]),
        (json!({"maxTxRate": 500}), "maxTxRate", 6, &[5, 0, 500]),
        (json!({"minTxRate": 100}), "minTxRate", 6, &[5, 100, 1000]),
        (json!({"trust": true}), "trust", 9, &[5, 1]),
        (json!({"portGuid": "0e:42:a1:03:00:65:4c:3f"}), "portGuid", 11, &guid),
    ] {
        let mut changes = changes(5, config(asked.clone()), now());
        let (named, info) = changes.pop().unwrap();
        assert!(changes.is_empty(), "{asked}");
        assert_eq!(named, format!("virtualFunction.{field}"));
        let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]);
        let mut bytes = vec![0; list.buffer_len()];
        list.emit(&mut bytes);
        assert_eq!(
            bytes,
            attribute(22, &attribute(1, &attribute(kind, &words(values)))),
            "{asked}"
        );
    }
}

/// `IFLA_VF_VLAN_LIST` is 12, with an `IFLA_VF_VLAN_INFO` (1): number, VLAN, priority and the protocol,
/// in the network's byte order, with two bytes of padding (`struct ifla_vf_vlan_info`).
#[test]
fn the_protocol_of_a_vlan_is_encoded_and_restored() {
    let asked = config(json!({"vlan": 7, "vlanQos": 3, "vlanProto": "802.1ad"}));
    let mut found = changes(5, asked, now());
    let (field, info) = found.pop().unwrap();
    assert_eq!((field, found.len()), ("virtualFunction.vlanProto", 0));
    let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info.clone()])]);
    let mut bytes = vec![0; list.buffer_len()];
    list.emit(&mut bytes);
    let value = [words(&[5, 7, 3]), vec![0x88, 0xa8, 0, 0]].concat();
    assert_eq!(bytes, attribute(22, &attribute(1, &attribute(12, &attribute(1, &value)))));
    // Read back, it is what was asked for; the former VLAN is of the other protocol.
    let vlan = VfInfo::Vlan(VfInfoVlan::new(5, 7, 3));
    let set = function_config(&[vlan, info], 5).unwrap();
    assert!(changes(5, asked, set).is_empty());
    let (physical, link) = ("0000:86:00.0".to_owned(), "rail3".to_owned());
    let function = PlannedFunction { physical, link, index: 5, asked, former: now() };
    let restored = changes(5, former(&function), set);
    let fields: Vec<_> = restored.iter().map(|(field, _)| *field).collect();
    assert_eq!(fields, ["virtualFunction.vlan"]);
}

/// `IFLA_VF_IB_NODE_GUID` is 10 and `IFLA_VF_IB_PORT_GUID` 11, both with `struct ifla_vf_guid`:
/// the number in 4 bytes, 4 bytes of padding, and the GUID as a number of 8 bytes. iproute2 sends
/// the same for `ip link set PF vf 5 node_guid 0e:42:a1:03:00:65:4c:3e` (`iplink_parse_vf`).
#[test]
fn guids_are_encoded_for_the_kernel() {
    let guid: u64 = 0x0e42_a103_0065_4c3e;
    let value = [&words(&[5, 0])[..], &guid.to_ne_bytes()].concat();
    for ((name, info), (expected, kind)) in
        guids_of(5, guid).into_iter().zip([("node", 10), ("port", 11)])
    {
        assert_eq!(name, expected);
        let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]);
        let mut bytes = vec![0; list.buffer_len()];
        list.emit(&mut bytes);
        assert_eq!(bytes, attribute(22, &attribute(1, &attribute(kind, &value))), "{name}");
    }
}

#[test]
fn unchanged_settings_are_not_set() {
    assert!(changes(5, now(), now()).is_empty());
    assert!(changes(5, VirtualFunctionConfig::default(), now()).is_empty());
    assert_eq!(changes(5, now(), VirtualFunctionConfig::default()).len(), 6);
}

/// From every state that the claim's settings can have left, including partial ones.
#[test]
fn only_requested_settings_are_restored() {
    let asked = config(json!({
        "vlan": 7, "vlanQos": 3, "trust": true, "maxTxRate": 500,
        "portGuid": "0e:42:a1:03:00:65:4c:3f",
    }));
    let (physical, link) = ("0000:86:00.0".to_owned(), "rail3".to_owned());
    let function = PlannedFunction { physical, link, index: 5, asked, former: now() };
    let fields = |left| {
        let changes = changes(5, former(&function), left);
        changes.into_iter().map(|(field, _)| field).collect::<Vec<_>>()
    };
    assert!(fields(now()).is_empty(), "nothing was set");
    let half = VirtualFunctionConfig { vlan: Some(7), vlan_qos: Some(3), ..now() };
    assert_eq!(fields(half), ["virtualFunction.vlan"]);
    let whole = VirtualFunctionConfig {
        trust: Some(true),
        max_tx_rate: Some(500),
        port_guid: asked.port_guid,
        ..half
    };
    let all = ["vlan", "trust", "maxTxRate", "portGuid"];
    assert_eq!(fields(whole), all.map(|field| format!("virtualFunction.{field}")));
    // A setting that the claim did not request.
    let other = VirtualFunctionConfig { spoof_check: Some(false), ..now() };
    assert!(fields(other).is_empty());
}

#[test]
fn settings_are_read_by_function_number() {
    let infos = [
        VfInfo::Vlan(VfInfoVlan::new(5, 7, 3)),
        VfInfo::Rate(VfInfoRate::new(5, 0, 500)),
        VfInfo::SpoofCheck(VfInfoSpoofCheck::new(5, true)),
        VfInfo::LinkState(VfInfoLinkState::new(5, VfLinkState::Enable)),
        VfInfo::Trust(VfInfoTrust::new(5, false)),
        VfInfo::IbPortGuid(VfInfoGuid::new(5, 0x0e42_a103_0065_4c3e)),
    ];
    let expected = config(json!({
        "vlan": 7, "vlanQos": 3, "trust": false, "spoofCheck": true, "minTxRate": 0,
        "maxTxRate": 500, "linkState": "enable", "portGuid": "0e:42:a1:03:00:65:4c:3e",
    }));
    assert_eq!(function_config(&infos, 5), Some(expected));
    let unset = [VfInfo::IbPortGuid(VfInfoGuid::new(5, 0))];
    assert_eq!(function_config(&unset, 5), Some(VirtualFunctionConfig::default()));
    assert_eq!(function_config(&infos, 6), None);
}
