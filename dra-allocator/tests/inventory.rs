//! Checks that the index, after any changes, gives the same answers as a new index of the remaining
//! objects.
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::collections::BTreeMap;

use dra_allocator::{ClaimName, DeviceId, Inventory, MinorVersion, PoolProblem, Settings};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use proptest::prelude::*;
use serde::de::DeserializeOwned;

const NODES: u8 = 3;

fn yaml<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

/// The slice with this number: of one node, or of all.
fn slice(number: u8, devices: u8) -> ResourceSlice {
    let node = number % (NODES + 1);
    let target =
        if node == NODES { "allNodes: true".to_owned() } else { format!("nodeName: n{node}") };
    let devices: Vec<_> = (0..devices).map(|d| format!("{{name: d{d}}}")).collect();
    let devices = devices.join(", ");
    yaml(&format!(
        "{{metadata: {{name: s{number}}}, spec: {{driver: d.example.com, {target}, \
         pool: {{name: p{number}, generation: 1, resourceSliceCount: 1}}, devices: [{devices}]}}}}"
    ))
}

/// A claim that holds a device; a share of it if the number is odd.
fn claim(number: u8, device: u8) -> ResourceClaim {
    let share = if number % 2 == 1 { ", shareID: x, consumedCapacity: {c: 1}" } else { "" };
    yaml(&format!(
        "{{metadata: {{name: c{number}, namespace: ns}}, spec: {{}}, status: {{allocation: \
         {{devices: {{results: [{{request: r, driver: d.example.com, pool: p0, \
         device: d{device}{share}}}]}}}}}}}}"
    ))
}

#[derive(Clone, Debug)]
enum Event {
    Slice(u8, u8),
    NoSlice(u8),
    Claim(u8, u8),
    NoClaim(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..6_u8, 0..4_u8).prop_map(|(slice, devices)| Event::Slice(slice, devices)),
        (0..6_u8).prop_map(Event::NoSlice),
        (0..6_u8, 0..3_u8).prop_map(|(claim, device)| Event::Claim(claim, device)),
        (0..6_u8).prop_map(Event::NoClaim),
    ];
    prop::collection::vec(event, 0..40)
}

/// All answers of the index.
fn answers(inventory: &Inventory) -> String {
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    let nodes = (0..NODES).map(|node| {
        let devices = inventory.devices_on(&format!("n{node}"), &settings).unwrap();
        devices.iter().map(|device| device.id().to_string()).collect::<Vec<_>>()
    });
    let uses = (0..3).map(|device| {
        let id = DeviceId::new("d.example.com", "p0", format!("d{device}"));
        let state = inventory.state();
        let capacity = state.capacity_in_use(&id).map(|amounts| format!("{amounts:?}"));
        (state.contains(&id), state.is_shared(&id), capacity, inventory.holder(&id).is_some())
    });
    format!("{:?} {:?}", nodes.collect::<Vec<_>>(), uses.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn index_equals_a_new_one_after_any_changes(events in events()) {
        let mut inventory = Inventory::new();
        let (mut slices, mut claims) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Slice(number, devices) => {
                    inventory.apply_slice(&slice(number, devices)).unwrap();
                    slices.insert(number, slice(number, devices));
                }
                Event::NoSlice(number) => {
                    inventory.delete_slice(&format!("s{number}"));
                    slices.remove(&number);
                }
                Event::Claim(number, device) => {
                    inventory.apply_claim(&claim(number, device)).unwrap();
                    claims.insert(number, claim(number, device));
                }
                Event::NoClaim(number) => {
                    inventory.delete_claim(&ClaimName::new("ns", format!("c{number}")));
                    claims.remove(&number);
                }
            }
        }
        let mut fresh = Inventory::new();
        for slice in slices.values() {
            fresh.apply_slice(slice).unwrap();
        }
        for claim in claims.values() {
            fresh.apply_claim(claim).unwrap();
        }
        prop_assert_eq!(answers(&inventory), answers(&fresh));
    }
}

/// Pools from which nothing can be allocated are listed with the reason.
#[test]
fn unusable_pools_are_listed_with_the_reason() {
    let slice = |name: &str, pool: &str, [generation, count]: [i64; 2], devices: &str| {
        yaml::<ResourceSlice>(&format!(
            "{{metadata: {{name: {name}}}, spec: {{driver: d.example.com, nodeName: n0, pool: \
             {{name: {pool}, generation: {generation}, resourceSliceCount: {count}}}, \
             devices: [{devices}]}}}}"
        ))
    };
    let mut inventory = Inventory::new();
    let slices = [
        slice("whole", "whole", [1, 1], "{name: a}"),
        slice("half", "half", [2, 3], "{name: a}"),
        slice("half-old", "half", [1, 1], "{name: a}"),
        slice("twice-1", "twice", [1, 2], "{name: a}"),
        slice("twice-2", "twice", [1, 2], "{name: a}"),
    ];
    for slice in &slices {
        inventory.apply_slice(slice).unwrap();
    }
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    let broken = inventory.broken_pools_on("n0", &settings).unwrap();
    let told: Vec<_> = broken.iter().map(|(id, problem)| (&*id.pool, problem.clone())).collect();
    assert_eq!(
        told,
        [
            ("half", PoolProblem::Missing { there: 1, of: 3 }),
            ("twice", PoolProblem::Invalid("duplicate device name a".to_owned())),
        ]
    );
    assert_eq!(inventory.devices_on("n0", &settings).unwrap().len(), 1);
    assert_eq!(inventory.broken_pools_on("n1", &settings).unwrap(), []);
}
