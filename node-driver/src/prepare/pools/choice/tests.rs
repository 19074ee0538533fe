//! Claims on many nodes reserve addresses of one pool, with their steps in any order,
//! while nodes die and claims are deleted.

use super::*;
use cluster_model::nic_pool::{NicPoolSpec, address_name};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

const POOL: &str = "rdma";

fn addresses(cidr: &str) -> Addresses {
    let spec: NicPoolSpec = serde_json::from_value(json!({"ranges": [{"cidr": cidr}]})).unwrap();
    spec.addresses().remove(0)
}

fn pool(cidr: &str, written: &str) -> NicPool {
    serde_json::from_value(json!({
        "metadata": {"name": POOL, "managedFields": [
            {"manager": "kubectl", "operation": "Update", "time": written},
            {"manager": "fabric-controller", "operation": "Update", "subresource": "status",
                "time": "2026-12-01T00:00:00Z"},
        ]},
        "spec": {"ranges": [{"cidr": cidr}]},
    }))
    .unwrap()
}

fn claim() -> ClaimRef {
    ClaimRef { namespace: "a".into(), name: "c".into(), uid: "u".into() }
}

/// An address of claim `u`, as a driver reserves it.
fn reserved(node: &str, device: &str, address: &str) -> NicAddress {
    let claim = NicAddressClaim { namespace: "a".into(), name: "c".into(), uid: "u".into() };
    let address: IpPrefix = address.parse().unwrap();
    serde_json::from_value(json!({
        "metadata": {"name": address_name(POOL, address.address),
            "creationTimestamp": "2026-01-01T00:00:10Z"},
        "spec": {"pool": POOL, "address": address, "claim": claim, "node": node, "device": device},
    }))
    .unwrap()
}

#[test]
fn a_claim_keeps_its_addresses() {
    let pool = pool("10.0.0.0/24", "2026-01-01T00:00:00Z");
    let (v4, v6) = (addresses("10.0.0.0/24"), addresses("fd00::/64"));
    let listed = vec![
        reserved("n", "b", "10.0.0.2/24"),
        reserved("n", "a", "10.0.0.1/24"),
        reserved("n", "a", "fd00::1/64"),
    ];
    let devices = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut reserved = Reserved::new(listed, &claim(), "n", &devices);
    let mut keep =
        |device: &str, family| reserved.keep(&pool, family, device).map(|it| it.to_string());
    assert_eq!(keep("a", &v4).as_deref(), Some("10.0.0.1/24"));
    assert_eq!(keep("c", &v4), None, "that of b is not taken away");
    assert_eq!(keep("b", &v4).as_deref(), Some("10.0.0.2/24"));
    assert_eq!(keep("b", &v4), None, "each is used once");
    assert_eq!(keep("a", &v6).as_deref(), Some("fd00::1/64"));
}

#[test]
fn an_address_of_another_node_or_device_is_only_tried_again() {
    let family = addresses("10.0.0.0/24");
    let pool = pool("10.0.0.0/24", "2026-01-01T00:00:00Z");
    let listed = vec![
        reserved("elsewhere", "a", "10.0.0.1/24"),
        reserved("n", "gone", "10.0.0.2/24"),
        reserved("elsewhere", "a", "8.8.8.8/1"),
    ];
    let mut reserved = Reserved::new(listed, &claim(), "n", &["a".to_owned()]);
    assert_eq!(reserved.keep(&pool, &family, "a"), None);
    let mut again = || reserved.former(POOL, &family).map(|it| it.to_string());
    assert_eq!(again().as_deref(), Some("10.0.0.1/24"));
    assert_eq!(again().as_deref(), Some("10.0.0.2/24"));
    assert_eq!(again(), None);
}

#[test]
fn forged_addresses_are_not_used() {
    let gateway: NicPool = serde_json::from_value(json!({"metadata": {"name": POOL}, "spec": {
        "ranges": [{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}]}}))
    .unwrap();
    let other_name = |mut it: NicAddress| {
        it.metadata.name = Some("rdma.evil".to_owned());
        it
    };
    let other_claim = |mut it: NicAddress| {
        it.spec.claim.name = "d".to_owned();
        it
    };
    let other_pool = |mut it: NicAddress| {
        it.spec.pool = "other".to_owned();
        it.metadata.name = Some(it.spec.name());
        it
    };
    for (what, forged) in [
        ("outside the pool", reserved("n", "a", "8.8.8.8/1")),
        ("another length", reserved("n", "a", "10.0.0.9/1")),
        ("the gateway's", reserved("n", "a", "10.0.0.1/24")),
        ("another name", other_name(reserved("n", "a", "10.0.0.9/24"))),
        ("another claim", other_claim(reserved("n", "a", "10.0.0.9/24"))),
        ("another pool", other_pool(reserved("n", "a", "10.0.0.9/24"))),
    ] {
        let mut reserved = Reserved::new(vec![forged], &claim(), "n", &["a".to_owned()]);
        let family = gateway.spec.addresses().remove(0);
        assert_eq!(reserved.keep(&gateway, &family, "a"), None, "{what}");
    }
    // A pool that has shrunk since leaves claims their addresses.
    let shrunk = pool("10.0.0.0/30", "2026-01-01T00:00:20Z");
    let family = shrunk.spec.addresses().remove(0);
    let listed = vec![reserved("n", "a", "10.0.0.9/24")];
    let mut reserved = Reserved::new(listed, &claim(), "n", &["a".to_owned()]);
    let kept = reserved.keep(&shrunk, &family, "a");
    assert_eq!(kept.map(|it| it.to_string()).as_deref(), Some("10.0.0.9/24"));
}

#[test]
fn the_pool_is_listed_only_after_failed_attempts() {
    let family = addresses("10.0.0.0/24");
    let mut choice = AddressSearch::new(&family, "u/d".to_owned());
    let mut tried = BTreeSet::new();
    for _ in 0..BLIND {
        let SearchStep::Create(address) = choice.step() else { panic!("{:?}", choice.step()) };
        assert!(tried.insert(address));
        choice.is_taken(address.address);
    }
    assert_eq!(choice.step(), SearchStep::List);
    let mut left = (1..=254).map(|last| IpAddr::from([10, 0, 0, last]));
    let left = left.rfind(|it| tried.iter().all(|tried| tried.address != *it)).unwrap();
    let all = (1..=254).map(|last| IpAddr::from([10, 0, 0, last]));
    choice.are_taken(all.filter(|it| *it != left));
    assert_eq!(choice.step(), SearchStep::Create(IpPrefix { address: left, prefix_len: 24 }));
    choice.is_taken(left);
    assert_eq!(choice.step(), SearchStep::Full);
}

/// The API server's state: an object can be created only once.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, (usize, IpAddr)>,
}

impl Server {
    fn create(&mut self, claim: usize, address: IpAddr) -> bool {
        let name = address_name(POOL, address);
        if self.objects.contains_key(&name) {
            return false;
        }
        self.objects.insert(name, (claim, address));
        true
    }
}

/// A claim, its node, and its driver's progress.
struct Pod<'a> {
    node: usize,
    choice: Option<AddressSearch<'a>>,
    has: Option<IpAddr>,
    is_gone: bool,
}

fn start(family: &Addresses, claim: usize, node: usize) -> Pod<'_> {
    let choice = AddressSearch::new(family, format!("claim-{claim}/nic"));
    Pod { node, choice: Some(choice), has: None, is_gone: false }
}

/// One step of a claim's driver.
fn step(server: &mut Server, pod: &mut Pod<'_>, claim: usize) {
    let Some(choice) = &mut pod.choice else { return };
    match choice.step() {
        SearchStep::Create(address) => {
            if server.create(claim, address.address) {
                (pod.has, pod.choice) = (Some(address.address), None);
            } else {
                choice.is_taken(address.address);
            }
        }
        SearchStep::List => choice.are_taken(server.objects.values().map(|(_, address)| *address)),
        SearchStep::Full => pod.choice = None,
    }
}

fn check_no_address_twice(server: &Server, pods: &[Pod<'_>]) -> Result<(), TestCaseError> {
    let mut seen = BTreeMap::new();
    for (claim, pod) in pods.iter().enumerate().filter(|(_, pod)| !pod.is_gone) {
        if let Some(address) = pod.has {
            prop_assert_eq!(seen.insert(address, claim), None, "{} twice", address);
            let object = server.objects.get(&address_name(POOL, address));
            prop_assert_eq!(object, Some(&(claim, address)));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// 1,000 pods on 200 nodes, of which 100 die. Their pods are deleted, some while
    /// reserving an address, and return elsewhere with other claims.
    #[test]
    fn a_thousand_pods_and_a_hundred_node_deaths_give_no_address_twice(
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 12_000),
        tight: bool,
    ) {
        const PODS: usize = 1000;
        const NODES: usize = 200;
        // A tight pool: 1,022 addresses for 1,000 pods.
        let family = addresses(if tight { "10.0.0.0/22" } else { "10.0.0.0/16" });
        let mut server = Server::default();
        let mut pods: Vec<Pod<'_>> =
            (0..PODS).map(|claim| start(&family, claim, claim % NODES)).collect();
        let mut alive: Vec<usize> = (0..NODES).collect();
        for (number, (choice, kind)) in order.iter().enumerate() {
            if number % 100 == 99 && alive.len() > NODES - 100 {
                let dead = alive.remove(choice.index(alive.len()));
                for claim in 0..pods.len() {
                    if pods[claim].node == dead && !pods[claim].is_gone {
                        (pods[claim].is_gone, pods[claim].choice) = (true, None);
                        let (again, node) = (pods.len(), alive[claim % alive.len()]);
                        pods.push(start(&family, again, node));
                    }
                }
                check_no_address_twice(&server, &pods)?;
            }
            if *kind == 0 {
                // The controller deletes addresses whose claims are gone.
                let gone = server.objects.iter().find(|(_, (claim, _))| pods[*claim].is_gone);
                if let Some(name) = gone.map(|(name, _)| name.clone()) {
                    server.objects.remove(&name);
                }
            } else {
                let claim = choice.index(pods.len());
                step(&mut server, &mut pods[claim], claim);
            }
        }
        prop_assert_eq!(alive.len(), 100);
        // After the addresses of deleted claims are freed, every remaining claim gets
        // one.
        server.objects.retain(|_, (claim, _)| !pods[*claim].is_gone);
        for (claim, pod) in pods.iter_mut().enumerate().filter(|(_, pod)| !pod.is_gone) {
            if pod.has.is_none() {
                *pod = start(&family, claim, pod.node);
                while pod.choice.is_some() {
                    step(&mut server, pod, claim);
                }
            }
        }
        check_no_address_twice(&server, &pods)?;
        let served = pods.iter().filter(|pod| !pod.is_gone && pod.has.is_some()).count();
        prop_assert_eq!(served, PODS);
    }
}
