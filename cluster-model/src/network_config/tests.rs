//! Accepted and rejected configurations, with the error texts.

use super::*;
use serde_json::json;
use topology_graph::Level;

fn refusal(value: &serde_json::Value) -> String {
    use std::error::Error;
    let error = NetworkConfig::parse(value).expect_err("refused");
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[test]
fn every_field_of_upstream() {
    let value = json!({
        "interface": {
            "name": "dranet0", "addresses": ["169.254.169.14/24", "fd00::5/64"], "mtu": 4321,
            "hardwareAddr": "00:11:22:33:44:55", "gsoMaxSize": 65536, "groMaxSize": 65536,
            "gsoIPv4MaxSize": 65536, "groIPv4MaxSize": 65536, "disableEbpfPrograms": true,
            "forwarding": true, "arpIgnore": 8, "arpAnnounce": 2
        },
        "routes": [
            {"destination": "169.254.169.0/24", "gateway": "169.254.169.1"},
            {"destination": "10.0.0.0/8", "scope": 253, "table": 100, "source": "169.254.169.14"}
        ],
        "rules": [{"priority": 32000, "source": "192.168.100.0/24", "table": 100}],
        "neighbors": [{"destination": "169.254.169.9", "hardwareAddr": "02:00:00:00:00:01"}],
        "ethtool": {"features": {"tcp-segmentation-offload": false}, "privateFlags": {"x": true}}
    });
    let config = NetworkConfig::parse(&value).expect("upstream's own fields");
    let again = serde_json::to_value(&config).expect("serialises");
    assert_eq!(NetworkConfig::parse(&again).expect("reads its own text"), config);
    assert_eq!(again["interface"]["gsoIPv4MaxSize"], 65536);
}

/// The fields of upstream's pull request 241.
#[test]
fn addressing_has_the_words_of_upstream() {
    let parse =
        |interface| NetworkConfig::parse(&json!({ "interface": interface })).unwrap().interface;
    let ipvlan = json!({"type": "ipvlan", "ipvlan": {"mode": "l2", "flag": "bridge"},
        "addressing": "static", "addresses": ["10.0.0.1/24"]});
    assert_eq!(parse(ipvlan).kind, Some(InterfaceKind::IpVlan));
    assert_eq!(parse(json!({"addressing": "dhcp"})).dhcp, Some(true));
    assert_eq!(parse(json!({"addressing": "static", "pool": "rdma"})).dhcp, None);
    for interface in [json!({"unnumbered": true}), json!({"addressing": "unnumbered"})] {
        let mut interface = interface;
        interface["type"] = json!("macvlan");
        assert!(parse(interface).addresses.is_empty());
    }
}

#[test]
fn late_binding_names_a_level() {
    let parsed = |late: serde_json::Value| NetworkConfig::parse(&json!({"lateBinding": late}));
    let config = parsed(json!({"gpus": 2, "within": "numa"})).unwrap();
    let wanted = LateBindingConfig { gpus: Some(2), within: Some(Level::Numa) };
    assert_eq!(config.late_binding, Some(wanted));
    assert_eq!(parsed(json!({})).unwrap().late_binding, Some(LateBindingConfig::default()));
    for refused in
        [json!({"within": "rack"}), json!({"gpus": -1}), json!({"near": true}), json!([2])]
    {
        assert!(parsed(refused.clone()).is_err(), "{refused}");
    }
}

#[test]
fn refusals_name_field_and_rule() {
    let cases = [
        json!({"interfaces": {}}),
        json!({"interface": {"mtu": 67}}),
        json!({"interface": {"mtu": "9000"}}),
        json!({"interface": {"name": "far-too-long-for-linux"}}),
        json!({"interface": {"name": "a/b"}}),
        json!({"interface": {"name": ".."}}),
        json!({"interface": {"name": "net%d%d"}}),
        json!({"interface": {"name": "net%s"}}),
        json!({"interface": {"name": "too-long-for-%d"}}),
        json!({"interface": {"dhcp": true, "addresses": ["10.0.0.1/8"]}}),
        json!({"interface": {"dhcp": true, "type": "ipvlan"}}),
        json!({"interface": {"pool": "rdma", "addresses": ["10.0.0.1/8"]}}),
        json!({"interface": {"pool": "rdma", "addressRange": "10.0.0.0/8"}}),
        json!({"interface": {"pool": "rdma", "dhcp": true}}),
        json!({"interface": {"type": "ipvlan", "macvlanMode": "private"}}),
        json!({"interface": {"addressing": "static"}}),
        json!({"interface": {"addressing": "dhcp", "addresses": ["10.0.0.1/8"]}}),
        json!({"interface": {"addressing": "dhcp", "dhcp": false}}),
        json!({"interface": {"addressing": "dhcp", "type": "ipvlan"}}),
        json!({"interface": {"addressing": "dhcp", "type": "ipoib"}}),
        json!({"interface": {"addressing": "unnumbered"}}),
        json!({"interface": {"addressing": "unnumbered", "type": "macvlan", "dhcp": true}}),
        json!({"interface": {"addressing": "static", "unnumbered": true}}),
        json!({"interface": {"addressing": "auto"}}),
        json!({"interface": {"ipvlan": {"mode": "l2"}}}),
        json!({"interface": {"type": "ipvlan", "ipvlan": {"mode": "l3"}}}),
        json!({"profile": "fast"}),
        json!({"virtualFunction": {"vlan": 4095}}),
        json!({"virtualFunction": {"vlan": 7, "vlanQos": 8}}),
        json!({"virtualFunction": {"vlanQos": 3}}),
        json!({"virtualFunction": {"vlanProto": "802.1ad"}}),
        json!({"virtualFunction": {"vlan": 7, "vlanProto": "802.1x"}}),
        json!({"virtualFunction": {"minTxRate": 200, "maxTxRate": 100}}),
        json!({"virtualFunction": {"linkState": "up"}}),
        json!({"virtualFunction": {"portGuid": "00:00:00:00:00:00:00:00"}}),
        json!({"virtualFunction": {"portGuid": "0e:42:a1:65:4c:3e"}}),
        json!({"interface": {"pkey": "0x8001"}}),
        json!({"interface": {"type": "ipoib", "pkey": "0x8000"}}),
        json!({"interface": {"type": "ipoib", "pkey": "8001"}}),
        json!({"interface": {"type": "ipoib", "hardwareAddr": "00:11:22:33:44:55"}}),
        json!({"interface": {"type": "ipoib", "dhcp": true}}),
        json!({"interface": {"addresses": ["10.0.0.1"]}}),
        json!({"interface": {"addresses": ["10.0.0.1/33"]}}),
        json!({"interface": {"hardwareAddr": "00:11:22"}}),
        json!({"interface": {"gsoMaxSize": 0}}),
        json!({"interface": {"arpIgnore": 4}}),
        json!({"interface": {"arpAnnounce": 3}}),
        json!({"interface": {"vrf": {"table": 7}}}),
        json!({"interface": {"vrf": {"name": "v", "table": 254}}}),
        json!({"routes": [{"destination": "10.0.0.0/8"}]}),
        json!({"routes": [{"destination": "10.0.0.0/8", "gateway": "fd00::1"}]}),
        json!({"routes": [{"destination": "10.0.0.0/8", "scope": 254}]}),
        json!({"rules": [{"priority": 32768, "source": "10.0.0.0/8"}]}),
        json!({"rules": [{"table": 5}]}),
        json!({"interface": {"vrf": {"name": "v"}}, "rules": [{"source": "10.0.0.0/8"}]}),
        json!({"rdma": {"serviceLevel": 16}}),
        json!({"rdma": {"roceVersion": 3}}),
        json!({"rdma": {"roceVersion": 2, "gidIndex": 3}}),
        json!({"rdma": {"trafficClass": 256}}),
        json!({"neighbors": [{"ipAddress": "10.0.0.1", "hardwareAddr": "02:00:00:00:00:01"}]}),
    ];
    let lines: Vec<_> = cases.iter().map(|case| format!("{case}\n  {}", refusal(case))).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_pattern_takes_the_lowest_number_that_is_free() {
    let taken = ["rail0", "rail2"];
    for (pattern, single, lowest) in [
        ("rail%d", None, "rail1"),
        ("%d", None, "0"),
        ("r%d-x", None, "r0-x"),
        ("rail0", Some("rail0"), "rail0"),
    ] {
        let pattern: LinkNamePattern = pattern.parse().expect("a pattern");
        let name = pattern.lowest(|name| taken.contains(&name.as_str()));
        assert_eq!(name.as_str(), lowest);
        assert_eq!(pattern.single().as_ref().map(LinkName::as_str), single);
    }
}

#[test]
fn rdma_only_devices_reject_interface_settings() {
    for value in [
        json!({"interface": {"name": "net1"}}),
        json!({"interface": {"vrf": {"name": "v"}}}),
        json!({"interface": {"forwarding": false}}),
        json!({"routes": [{"destination": "10.0.0.0/8", "scope": 253}]}),
        json!({"ethtool": {}}),
    ] {
        let config = NetworkConfig::parse(&value).expect("well formed");
        config.check_rdma_only().expect_err("an interface is needed");
    }
    let rdma = NetworkConfig::parse(&json!({"rdma": {"serviceLevel": 3}})).expect("well formed");
    rdma.check_rdma_only().expect("it needs no interface");
    NetworkConfig::default().check_rdma_only().expect("nothing is asked");
}

#[test]
fn vrf_table_is_the_same_as_upstream() {
    let domain = |table| VrfConfig { name: "blue".parse().expect("a name"), table };
    assert_eq!(domain(Some(7)).table_id(), 7);
    // fnv32a("a") = 0xe40c292c = 3826002220.
    let a = VrfConfig { name: "a".parse().expect("a name"), table: None };
    assert_eq!(a.table_id(), 1000 + 3_826_002_220 % 1000);
    assert!((1000..2000).contains(&domain(None).table_id()));
}

mod laws {
    use super::super::{Guid, IpPrefix, MacAddress, PartitionKey};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    proptest! {
        #[test]
        fn prefix_round_trip(bits: u128, length in 0u8..=128, v4: bool) {
            let prefix = if v4 {
                let address = IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32));
                IpPrefix { address, prefix_len: length % 33 }
            } else {
                IpPrefix { address: IpAddr::V6(Ipv6Addr::from_bits(bits)), prefix_len: length }
            };
            prop_assert_eq!(prefix.to_string().parse::<IpPrefix>().expect("own text"), prefix);
        }

        #[test]
        fn mac_round_trip(bytes: [u8; 6]) {
            let mac = MacAddress::from_bytes(&bytes).expect("six bytes");
            prop_assert_eq!(mac.to_string().parse::<MacAddress>().expect("own text"), mac);
        }

        #[test]
        fn partition_round_trip(key: u16) {
            let text = format!("{key:#06x}");
            let parsed = text.parse::<PartitionKey>();
            prop_assert_eq!(parsed.is_ok(), key != 0 && key != 0x8000);
            if let Ok(parsed) = parsed {
                prop_assert_eq!(parsed.to_string(), text);
                prop_assert_eq!(parsed.of_full_member(), key | 0x8000);
            }
        }

        #[test]
        fn guid_round_trip(number: u64) {
            let guid = Guid::new(number);
            prop_assert_eq!(guid.is_some(), number != 0 && number != u64::MAX);
            if let Some(guid) = guid {
                prop_assert_eq!(guid.to_string().parse::<Guid>().expect("own text"), guid);
                prop_assert_eq!(guid.number(), number);
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = super::super::NetworkConfig::from_json(text.as_bytes());
            let _ = text.parse::<IpPrefix>();
            let _ = text.parse::<MacAddress>();
            let _ = text.parse::<Guid>();
        }
    }
}
