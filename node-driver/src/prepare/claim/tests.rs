//! An allocated claim, and variants with errors.

use super::*;
use crate::model::claim::is_safe_uid;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

const NODE: &str = "node-1";

fn asked() -> ClaimRef {
    ClaimRef { namespace: "team".into(), name: "nics".into(), uid: "u-1".into() }
}

fn allocated() -> Value {
    json!({
        "metadata": {"namespace": "team", "name": "nics", "uid": "u-1"},
        "spec": {},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "p-1"}],
            "allocation": {"devices": {
                "results": [
                    {"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0", "request": "gpus"},
                    {"driver": "dra.net", "pool": NODE, "device": "pci-1", "request": "nics/near"},
                    {"driver": "dra.net", "pool": NODE, "device": "pci-2", "request": "more"}
                ],
                "config": [
                    {"source": "FromClass", "requests": ["more"],
                     "opaque": {"driver": "dra.net", "parameters": {"of": "class"}}},
                    {"source": "FromClaim", "requests": ["nics"],
                     "opaque": {"driver": "dra.net", "parameters": {"of": "request"}}},
                    {"source": "FromClaim", "requests": ["nics/near"],
                     "opaque": {"driver": "dra.net", "parameters": {"of": "subrequest"}}},
                    {"source": "FromClaim", "requests": ["nics/far"],
                     "opaque": {"driver": "dra.net", "parameters": {"of": "another"}}},
                    {"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": {}}}
                ]
            }}
        }
    })
}

fn object(claim: Value) -> ResourceClaim {
    serde_json::from_value(claim).expect("a claim")
}

fn read(claim: Value) -> Result<AllocatedClaim, ClaimError> {
    AllocatedClaim::read(&object(claim), &asked(), "dra.net", NODE)
}

#[test]
fn devices_and_their_parameters() {
    let claim = read(allocated()).expect("allocated here");
    let devices: Vec<_> = claim
        .devices
        .iter()
        .map(|d| (&*d.device, base_request(&d.request), d.parameters.clone()))
        .collect();
    assert_eq!(
        devices,
        [
            ("pci-1", "nics", Some(json!({"of": "subrequest"}))),
            ("pci-2", "more", Some(json!({"of": "class"})))
        ]
    );
    assert_eq!(claim.pods, [PodRef { name: "train-0".into(), uid: "p-1".into() }]);
    assert_eq!(claim.others.len(), 1);
}

#[test]
fn fields_of_the_class_win_over_those_of_the_claim() {
    let with = |claimed: &[Value], classes: &[Value]| {
        let config = |source: &str, parameters: &Value| json!({"source": source, "opaque": {"driver": "dra.net", "parameters": parameters}});
        let classes = classes.iter().map(|it| config("FromClass", it));
        let all: Vec<_> = classes.chain(claimed.iter().map(|it| config("FromClaim", it))).collect();
        let mut claim = allocated();
        claim["status"]["allocation"]["devices"]["config"] = json!(all);
        let device = read(claim).expect("allocated here").devices.swap_remove(0);
        (device.parameters, device.claimed)
    };
    let class = json!({"interface": {"type": "macvlan", "macvlanMode": "private",
        "addresses": ["10.0.0.5/24"]}, "routes": [{"destination": "10.0.0.0/8"}]});
    let own =
        json!({"interface": {"type": "passthrough", "mtu": 9000, "addresses": []}, "routes": []});
    let both = json!({"interface": {"type": "macvlan", "macvlanMode": "private", "mtu": 9000,
        "addresses": ["10.0.0.5/24"]}, "routes": [{"destination": "10.0.0.0/8"}]});
    let null = json!({"interface": null, "routes": null});
    let more = json!({"interface": {"mtu": 4000}});
    for (what, claimed, classes, expected) in [
        ("nothing", vec![json!({})], vec![class.clone()], &class),
        ("null", vec![null], vec![class.clone()], &class),
        ("other values", vec![own.clone()], vec![class.clone()], &both),
        ("the last of a claim", vec![more.clone(), own.clone()], vec![], &own),
        ("the class alone", vec![], vec![class.clone()], &class),
        (
            "several classes",
            vec![own.clone()],
            vec![class.clone(), json!({"interface": null})],
            &both,
        ),
        ("no object", vec![json!([])], vec![class.clone()], &json!([])),
    ] {
        let (parameters, own) = with(&claimed, &classes);
        assert_eq!(parameters.as_ref(), Some(expected), "{what}");
        assert_eq!(own, claimed.last().cloned(), "{what}");
    }
}

#[test]
fn what_is_refused() {
    let change = |pointer: &str, value: Value| {
        let mut claim = allocated();
        *claim.pointer_mut(pointer).expect("a field") = value;
        read(claim).expect_err("refused").to_string()
    };
    let refusals = [
        change("/metadata/uid", json!("u-2")),
        change("/status/allocation", Value::Null),
        change("/status/allocation/devices/results/1/pool", json!("node-2")),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r"
    claim `team/nics` has UID `u-2`, not `u-1`: it was deleted and created again
    claim `team/nics` is not allocated
    claim `team/nics` has device `pci-1` of pool `node-2`, which does not belong to node `node-1`
    ");
}

#[test]
fn unsafe_uids_are_rejected() {
    for uid in ["", "../x", "a/b", "a b", &"a".repeat(65)] {
        assert!(!is_safe_uid(uid), "{uid}");
    }
    assert!(is_safe_uid("0f9d7a53-5b7e-4f0e-a4c5-7a2b8f6f3c11"));
}

#[test]
fn guarded_fields_need_an_allowed_namespace_or_a_class() {
    let guarded = json!({"interface": {"hardwareAddr": "02:00:00:00:00:01"}});
    let with = |source: &str| {
        let mut claim = allocated();
        let config = json!([{"source": source,
            "opaque": {"driver": "dra.net", "parameters": guarded.clone()}}]);
        claim["status"]["allocation"]["devices"]["config"] = config;
        read(claim).expect("allocated here")
    };
    let (net, team) = (["net".to_owned()], ["net".to_owned(), "team".to_owned()]);
    with("FromClass").check_namespace(&net).expect("the operator's");
    with("FromClaim").check_namespace(&team).expect("its namespace is named");
    with("FromClaim").check_namespace(&["*".to_owned()]).expect("all are");
    let refusals =
        [with("FromClaim").check_namespace(&net), with("FromClaim").check_namespace(&[])];
    insta::assert_snapshot!(refusals.map(|it| it.expect_err("refused").to_string()).join("\n"), @r"
    claim `team/nics` sets `interface.hardwareAddr`, which is allowed only in the namespaces of --network-namespace (net)
    claim `team/nics` sets `interface.hardwareAddr`, which is allowed only in the namespaces of --network-namespace (none)
    ");
}

#[test]
fn the_bandwidth_is_the_consumed_capacity() {
    let of = |consumed: Value| {
        let mut claim = allocated();
        let result = &mut claim["status"]["allocation"]["devices"]["results"][1];
        result["shareID"] = json!("5a4e0000-0000-4000-8000-000000000001");
        result["consumedCapacity"] = consumed;
        read(claim).expect("allocated here").devices[0].bandwidth()
    };
    assert_eq!(of(json!({"dranet.io/bandwidth": "100G"})), Some(100_000_000_000));
    assert_eq!(of(json!({"dranet.io/bandwidth": "1600G"})), Some(1_600_000_000_000));
    assert_eq!(of(json!({"dranet.io/bandwidth": "0"})), None);
    assert_eq!(of(json!({"example.com/other": "100G"})), None);
    assert_eq!(of(Value::Null), None);
}

/// A driver's slice of one NIC with these capacities.
fn published(capacity: &Value) -> SliceDevices {
    let capacity: serde_json::Map<_, _> = capacity
        .as_object()
        .unwrap()
        .iter()
        .map(|(k, v)| (k.clone(), json!({"value": v})))
        .collect();
    let slice = json!({"metadata": {}, "spec": {
        "driver": "dra.net", "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "pci-1", "allowMultipleAllocations": true, "capacity": capacity}],
    }});
    SliceDevices::new(vec![serde_json::from_value(slice).expect("a slice")])
}

#[test]
fn a_claim_that_consumes_all_capacity_has_the_whole_device() {
    let with = |consumed: Value| {
        let mut claim = allocated();
        let result = &mut claim["status"]["allocation"]["devices"]["results"][1];
        result["shareID"] = json!("5a4e0000-0000-4000-8000-000000000001");
        result["consumedCapacity"] = consumed;
        read(claim).expect("allocated here")
    };
    let is_whole = |capacity: Value, consumed: Value| {
        let mut claim = with(consumed);
        claim.mark_whole("dra.net", &published(&capacity)).expect("it is read");
        claim.devices[0].is_whole && !claim.devices[0].is_shared()
    };
    let by = |shares: &str, bandwidth: &str| json!({"dranet.io/shares": shares, "dranet.io/bandwidth": bandwidth});
    assert!(is_whole(by("4", "400G"), by("4", "400G")));
    assert!(is_whole(by("4", "1T"), by("4", "1000G")), "the same amount in another unit");
    assert!(!is_whole(by("4", "400G"), by("4", "200G")));
    assert!(!is_whole(by("4", "400G"), by("1", "400G")));
    assert!(!is_whole(by("8", "400G"), by("4", "400G")), "the administrator has raised the number");
    assert!(!is_whole(by("4", "400G"), json!({"dranet.io/shares": "4"})));
    assert!(!is_whole(json!({}), by("4", "400G")), "no capacity is published");
    let mut claim = with(by("4", "400G"));
    insta::assert_snapshot!(
        claim.mark_whole("dra.net", &SliceDevices::default()).expect_err("not read"),
        @"claim `team/nics`: the ResourceSlices of this node could not be read, so it is not known whether the claim has all of device `pci-1`; the driver tries again"
    );
    // A device that cannot be shared needs no slice.
    read(allocated())
        .expect("allocated here")
        .mark_whole("dra.net", &SliceDevices::default())
        .expect("known");
}

#[test]
fn old_slices_suffice_if_they_have_all_devices_and_none_is_shared() {
    let slice = |driver: &str, devices: &[&str]| {
        let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
        let slice = json!({"metadata": {}, "spec": {
            "driver": driver, "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }});
        serde_json::from_value(slice).expect("a slice")
    };
    let nics = slice("dra.net", &["pci-1", "pci-2"]);
    let gpus = slice("gpu.nvidia.com", &["gpu-0"]);
    let claim = read(allocated()).expect("allocated here");
    let suffices = |slices: &[&ResourceSlice], claim: &AllocatedClaim| {
        let slices = slices.iter().map(|slice| (*slice).clone()).collect();
        claim.is_served_by(&SliceDevices::new(slices), "dra.net")
    };
    assert!(suffices(&[&nics, &gpus], &claim));
    assert!(!suffices(&[&nics], &claim), "the GPU is new");
    assert!(!suffices(&[&slice("dra.net", &["pci-1"]), &gpus], &claim), "a NIC is new");
    let mut shared = allocated();
    let result = &mut shared["status"]["allocation"]["devices"]["results"][1];
    result["shareID"] = json!("5a4e0000-0000-4000-8000-000000000001");
    result["consumedCapacity"] = json!({"dranet.io/shares": "4"});
    let shared = read(shared).expect("allocated here");
    assert!(!suffices(&[&nics, &gpus], &shared), "its capacity may have changed");
}
