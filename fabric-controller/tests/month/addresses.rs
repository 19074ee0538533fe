//! Addresses of a pool, whose claims come and go.

use crate::dice::Dice;
use crate::world::from;
use cluster_model::names::DRIVER;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use fabric_controller::nic_pools::NicPools;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const HOURS: usize = 30 * 24;

/// A claim that is allocated to a NIC of a node, with the pool in its configuration.
fn claim(number: usize) -> Value {
    let parameters = json!({"interface": {"pool": "rdma"}});
    json!({
        "metadata": {"name": name(number), "namespace": "team", "uid": uid(number)},
        "status": {"allocation": {"devices": {
            "results": [{"request": "r", "driver": DRIVER, "pool": format!("node-{number}"), "device": "d"}],
            "config": [{"source": "FromClaim", "requests": [],
                "opaque": {"driver": DRIVER, "parameters": parameters}}],
        }}},
    })
}

fn name(number: usize) -> String {
    format!("claim-{number}")
}

fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

fn key(number: usize) -> ObjectKey {
    ObjectKey { namespace: "team".to_owned(), name: name(number) }
}

/// The address that the driver takes for a claim: the first that is free.
fn address(number: usize, taken: &BTreeMap<usize, usize>, hour: usize) -> (usize, Value) {
    let free = (1..=200).find(|last| !taken.contains_key(last)).expect("the pool has room");
    let created = format!("2026-01-{:02}T{:02}:00:00Z", 1 + hour / 24, hour % 24);
    let object = json!({"metadata": {"name": format!("rdma.10-0-0-{free}"), "uid": format!("a-{number}"),
        "creationTimestamp": created}, "spec": {
        "pool": "rdma", "address": format!("10.0.0.{free}/24"), "node": format!("node-{number}"),
        "device": "d", "claim": {"namespace": "team", "name": name(number), "uid": uid(number)}}});
    (free, object)
}

#[test]
fn in_a_month_each_claim_keeps_its_address_and_each_is_free_afterwards() {
    let (mut pools, mut view, mut dice) = (NicPools::default(), ClusterView::default(), Dice(11));
    let pool = json!({"metadata": {"name": "rdma"}, "spec": {"ranges": [{"cidr": "10.0.0.0/24"}]}});
    pools.apply_pool(from(pool.clone()));
    // The claims, by number with the hour in which they end; and the addresses, with their claims.
    let (mut claims, mut taken, mut made) =
        (BTreeMap::<usize, usize>::new(), BTreeMap::<usize, usize>::new(), 0);
    let mut sizes = Vec::new();
    for hour in 0..HOURS {
        for (gone, _) in claims.extract_if(.., |_, end| *end <= hour) {
            Index::<ResourceClaim>::delete(&mut view, &key(gone));
        }
        for _ in 0..dice.below(12) {
            made += 1;
            view.apply(from::<ResourceClaim>(claim(made))).unwrap();
            claims.insert(made, hour + 1 + dice.below(10));
            let (last, object) = address(made, &taken, hour);
            pools.apply_address(from(object));
            taken.insert(last, made);
        }
        // Two rounds: what the API server confirms in the first is not asked again.
        for round in 0..2 {
            for doubtful in pools.doubtful(&view) {
                assert_eq!(round, 0, "{doubtful:?} is asked again");
                let number =
                    taken.iter().find(|(last, _)| doubtful.name == format!("rdma.10-0-0-{last}"));
                let (last, number) = number.map(|(last, number)| (*last, *number)).unwrap();
                let found =
                    claims.contains_key(&number).then(|| from::<ResourceClaim>(claim(number)));
                if found.is_some_and(|found| doubtful.is_held_by(&found)) {
                    pools.confirm(&doubtful, true);
                } else {
                    assert!(!claims.contains_key(&number), "{number} loses its address");
                    pools.delete_address(&doubtful.name);
                    taken.remove(&last);
                }
            }
        }
        assert_eq!(taken.len(), claims.len(), "hour {hour}");
        if let [(_, status)] = &pools.due_statuses()[..] {
            assert_eq!(usize::try_from(status.used).unwrap(), claims.len());
            let mut pool = pool.clone();
            pool["status"] = serde_json::to_value(status).unwrap();
            pools.apply_pool(from(pool));
        }
        sizes.push(format!("{pools:?}").len());
    }
    let most = |hours: &[usize]| hours.iter().copied().max().unwrap();
    let (first, last) = (most(&sizes[..10 * 24]), most(&sizes[10 * 24..]));
    println!("{made} claims; {first} characters at first, {last} later");
    assert!(last <= first + first / 2, "{first} characters in the first days, later {last}");
}
