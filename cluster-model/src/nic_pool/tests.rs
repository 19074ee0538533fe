//! The addresses of a pool, and the configuration that a claim gets with them.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn spec(value: Value) -> NicPoolSpec {
    serde_json::from_value(value).unwrap()
}

/// Every address, in the order of the blocks.
fn all(spec: &NicPoolSpec) -> Vec<String> {
    let mut taken = BTreeSet::new();
    for family in spec.addresses() {
        while let Some(prefix) = family.choose("", &taken) {
            assert!(family.contains(prefix.address), "{prefix}");
            taken.insert(prefix.address);
        }
        let count = taken.iter().filter(|it| it.is_ipv4() == family.is_v4()).count();
        assert_eq!(family.count(), count as u128);
    }
    taken.iter().map(ToString::to_string).collect()
}

#[test]
fn pools_have_hosts_without_exclusions_and_routers() {
    for (pool, expected) in [
        (json!({"ranges": [{"cidr": "10.0.0.0/30"}]}), vec!["10.0.0.1", "10.0.0.2"]),
        (json!({"ranges": [{"cidr": "10.0.0.0/31"}]}), vec!["10.0.0.0", "10.0.0.1"]),
        (json!({"ranges": [{"cidr": "10.0.0.7/32"}]}), vec!["10.0.0.7"]),
        (json!({"ranges": [{"cidr": "fd00::/126"}]}), vec!["fd00::1", "fd00::2", "fd00::3"]),
        (
            json!({"ranges": [{"cidr": "10.0.0.0/24", "first": "10.0.0.5", "last": "10.0.0.7"}]}),
            vec!["10.0.0.5", "10.0.0.6", "10.0.0.7"],
        ),
        (
            json!({"ranges": [{"cidr": "10.0.0.0/29", "gateway": "10.0.0.1"}],
                "exclude": ["10.0.0.4/31"]}),
            vec!["10.0.0.2", "10.0.0.3", "10.0.0.6"],
        ),
        (
            json!({"ranges": [{"cidr": "10.0.0.0/30"}],
                "routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.2"}]}),
            vec!["10.0.0.1"],
        ),
        // Ranges that overlap give each address once.
        (
            json!({"ranges": [{"cidr": "10.0.0.0/30"}, {"cidr": "10.0.0.0/29", "last": "10.0.0.4"}]}),
            vec!["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
        ),
        (
            json!({"ranges": [{"cidr": "10.0.0.0/30"}, {"cidr": "fd00::/127"}]}),
            vec!["10.0.0.1", "10.0.0.2", "fd00::1"],
        ),
        (json!({"ranges": [{"cidr": "10.0.0.0/30"}], "exclude": ["10.0.0.0/8"]}), vec![]),
    ] {
        let pool = spec(pool);
        pool.check().unwrap();
        assert_eq!(all(&pool), expected, "{pool:?}");
    }
}

#[test]
fn inconsistent_pools_are_rejected() {
    let range = |more: Value| {
        let mut range = json!({"cidr": "10.0.0.0/24"});
        range.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"ranges": [range]})
    };
    let refusals = [
        range(json!({"first": "10.0.1.1"})),
        range(json!({"last": "fd00::1"})),
        range(json!({"gateway": "10.1.0.1"})),
        range(json!({"first": "10.0.0.9", "last": "10.0.0.8"})),
        json!({"ranges": []}),
        json!({"ranges": [{"cidr": "10.0.0.0/24"}],
            "routes": [{"destination": "10.1.0.0/16", "gateway": "fd00::1"}]}),
    ]
    .map(|pool| spec(pool).check().unwrap_err().to_string());
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn the_pool_completes_what_the_claim_does_not_set() {
    let pool = spec(json!({
        "ranges": [
            {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"},
            {"cidr": "10.0.1.0/24", "gateway": "10.0.1.1"},
        ],
        "routes": [
            {"destination": "10.9.0.0/16"},
            {"destination": "10.8.0.0/16", "gateway": "10.0.1.9"},
            {"destination": "fd00::/8"},
        ],
        "interface": {"type": "ipvlan", "mtu": 4000},
    }));
    let config = |value| NetworkConfig::parse(&value).unwrap();
    let address = vec!["10.0.1.7/24".parse().unwrap()];
    let asked = config(json!({
        "interface": {"pool": "rdma", "mtu": 9000, "name": "net1"},
        "routes": [{"destination": "10.7.0.0/16", "gateway": "10.0.1.1"}],
    }));
    let completed = pool.complete(asked, address);
    let again = config(serde_json::to_value(&completed).unwrap());
    assert_eq!(again, completed, "it is valid");
    insta::assert_json_snapshot!(completed);
}

#[test]
fn absent_namespaces_allow_all() {
    let pool = |namespaces: Value| {
        spec(json!({"ranges": [{"cidr": "10.0.0.0/24"}], "namespaces": namespaces}))
    };
    assert!(pool(json!(null)).allows("a"));
    assert!(pool(json!(["a"])).allows("a") && !pool(json!(["a"])).allows("b"));
    assert!(!pool(json!([])).allows("a"));
}

#[test]
fn the_status_counts_nics() {
    let pool = spec(json!({"ranges": [{"cidr": "10.0.0.0/29"}, {"cidr": "fd00::/64"}]}));
    let taken: Vec<IpPrefix> =
        ["10.0.0.1/29", "10.0.7.1/29", "fd00::1/64"].map(|text| text.parse().unwrap()).into();
    // The second address is from a range that was removed.
    assert_eq!(pool.status(&taken), NicPoolStatus { size: 6, used: 2, free: 5 });
    let large = spec(json!({"ranges": [{"cidr": "::/0"}]}));
    assert_eq!(large.status(&[]).free, i64::MAX);
}

#[test]
fn objects_carry_their_type() {
    let pool =
        NicPool { spec: spec(json!({"ranges": [{"cidr": "10.0.0.0/24"}]})), ..NicPool::default() };
    let text = serde_json::to_value(&pool).unwrap();
    assert_eq!(text["apiVersion"], "topology.dranet.io/v1alpha1");
    assert_eq!((&text["kind"], text.get("status")), (&json!("NicPool"), None));
    assert_eq!(serde_json::from_value::<NicPool>(text).unwrap(), pool);
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u16; 8]>().prop_map(IpAddr::from)]
}

fn prefix(is_v4: bool) -> impl Strategy<Value = IpPrefix> {
    let bits: u8 = if is_v4 { 32 } else { 128 };
    (any::<u8>(), 0..=bits).prop_map(move |(last, prefix_len)| {
        let address = if is_v4 { format!("10.0.0.{last}") } else { format!("fd00::{last:x}") };
        IpPrefix { address: address.parse().unwrap(), prefix_len }
    })
}

fn any_spec() -> impl Strategy<Value = NicPoolSpec> {
    let range = (prop_oneof![prefix(true), prefix(false)], any::<[Option<u8>; 3]>());
    let range = range.prop_map(|(cidr, [first, last, gateway])| {
        let near = |last: Option<u8>| {
            let text = |last: u8| match cidr.address {
                IpAddr::V4(_) => format!("10.0.0.{last}"),
                IpAddr::V6(_) => format!("fd00::{last:x}"),
            };
            last.map(|last| text(last).parse().unwrap())
        };
        NicRange { cidr, first: near(first), last: near(last), gateway: near(gateway) }
    });
    let exclude = prop_oneof![prefix(true), prefix(false)];
    (prop::collection::vec(range, 0..4), prop::collection::vec(exclude, 0..4))
        .prop_map(|(ranges, exclude)| NicPoolSpec { ranges, exclude, ..NicPoolSpec::default() })
}

proptest! {
    #[test]
    fn each_address_has_a_unique_name(one in address(), other in address()) {
        let name = address_name("a.b", one);
        prop_assert_eq!(name == address_name("a.b", other), one == other);
        let is_label = |part: &str| {
            !part.starts_with('-') && !part.ends_with('-')
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        prop_assert!(name.split('.').all(is_label), "{}", name);
    }

    /// Addresses are unique, never excluded or a router's, and as many as `count` says.
    #[test]
    fn every_pool_assigns_each_address_once(spec in any_spec(), seed: String) {
        let sound = spec.check().is_ok();
        for family in spec.addresses() {
            let mut taken = BTreeSet::new();
            for _ in 0..300 {
                let Some(given) = family.choose(&seed, &taken) else { break };
                prop_assert!(taken.insert(given.address), "{} twice", given);
                prop_assert!(family.contains(given.address));
                let excluded = |it: &&IpPrefix| it.contains(given.address);
                prop_assert_eq!(spec.exclude.iter().find(excluded), None);
                let router = |it: &&NicRange| it.gateway == Some(given.address);
                prop_assert_eq!(spec.ranges.iter().find(router), None);
                let range = |it: &&NicRange| {
                    it.cidr.contains(given.address)
                        && it.cidr.prefix_len == given.prefix_len
                };
                prop_assert!(!sound || spec.ranges.iter().any(|it| range(&it)));
            }
            prop_assert!(taken.len() == 300 || taken.len() as u128 == family.count());
        }
    }
}
