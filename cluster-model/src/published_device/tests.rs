//! Both forms of a device give the same answers.

use super::*;
use crate::view::{ClusterView, Index};
use serde_json::{Value, json};

/// What is said of a device, which is the same in the form of the API and in that of the allocator.
fn said<T: PartialEq + std::fmt::Debug>(
    driver: &str,
    device: &Value,
    say: (impl Fn(&WireDevice<'_>) -> T, impl Fn(&Device) -> T),
) -> T {
    let slice = json!({ "metadata": { "name": "slice" }, "spec": {
        "driver": driver, "nodeName": "node", "devices": [device],
        "pool": { "name": "node", "generation": 1, "resourceSliceCount": 1 },
    } });
    let slice: v1::ResourceSlice = serde_json::from_value(slice).unwrap();
    let mut view = ClusterView::default();
    view.apply(slice.clone()).unwrap();
    let wire = WireDevice { driver, device: &slice.spec.devices.unwrap()[0] };
    let (of_api, of_allocator) = say;
    let devices = view.inventory().slices().flat_map(|slice| &slice.devices);
    let all: Vec<T> = devices.map(of_allocator).collect();
    assert_eq!(all, [of_api(&wire)]);
    of_api(&wire)
}

fn role(driver: &str, attributes: &Value) -> Role {
    let device = json!({ "name": "0000-1b-00-0", "attributes": attributes });
    said(driver, &device, (|it| it.role(), |it| it.role()))
}

#[test]
fn roles() {
    let kind = |kind: &str| json!({ "type": { "string": kind } });
    assert_eq!(role("gpu.nvidia.com", &kind("gpu")), Role::Gpu);
    assert_eq!(role("gpu.nvidia.com", &kind("mig")), Role::Part);
    assert_eq!(role("gpu.amd.com", &kind("amdgpu-partition")), Role::Part);
    assert_eq!(role("dra.net", &json!({})), Role::Nic);
    assert_eq!(role("dra.net", &json!({ "dranet.io/lateBinding": { "bool": true } })), Role::Place);
    assert_eq!(role("dra.networking.k8s.aws", &json!({})), Role::Nic);
    assert_eq!(role("networkdriver.cilium.io", &json!({})), Role::Other);
    let address = json!({ "pciAddr": { "string": "0000:1b:00.0" } });
    assert_eq!(role("networkdriver.cilium.io", &address), Role::Nic);
    assert_eq!(role("other.example.com", &address), Role::Other);
}

/// Why no new pod gets a NIC, in a word.
fn trouble(state: Option<&str>, is_degraded: bool, taints: &[(&str, &str)]) -> String {
    let taints = taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect }));
    let mut device = json!({
        "name": "nic", "taints": taints.collect::<Vec<_>>(),
        "attributes": { "dranet.io/degraded": { "bool": is_degraded } },
    });
    if let Some(state) = state {
        device["attributes"]["dranet.io/portState"] = json!({ "string": state });
    }
    let word = |trouble: Option<Trouble<'_>>| match trouble {
        None => "none".to_owned(),
        Some(Trouble::PortDown { state, taint }) => {
            format!("down {state:?} {}", taint.is_some())
        }
        Some(Trouble::Degraded) => "degraded".to_owned(),
        Some(Trouble::Tainted((taint, _))) => taint.to_string(),
    };
    said("dra.net", &device, (|it| word(it.trouble()), |it| word(it.trouble())))
}

/// What is supposed for a device that recovers leaves nothing of its trouble.
#[test]
fn a_device_that_is_supposed_to_recover_has_no_trouble() {
    let slice = json!({ "metadata": { "name": "slice" }, "spec": {
        "driver": "dra.net", "nodeName": "node",
        "pool": { "name": "node", "generation": 1, "resourceSliceCount": 1 },
        "devices": [{
            "name": "nic", "taints": [{ "key": "dranet.io/port-down", "effect": "NoSchedule" }],
            "attributes": {
                "dranet.io/portState": { "string": "Down" }, "dranet.io/degraded": { "bool": true },
            },
        }],
    } });
    let mut view = ClusterView::default();
    view.apply(serde_json::from_value::<v1::ResourceSlice>(slice).unwrap()).unwrap();
    let device = |view: &ClusterView| {
        view.inventory().slices().flat_map(|slice| slice.devices.clone()).next().unwrap()
    };
    let down = device(&view);
    assert!(down.trouble().is_some());
    view.suppose_recovered(down.id());
    assert_eq!(device(&view).trouble(), None);
}

#[test]
fn troubles() {
    let (down, gone) = ("dranet.io/port-down", "dranet.io/gone");
    assert_eq!(trouble(None, false, &[]), "none");
    assert_eq!(trouble(Some("Active"), false, &[(gone, "None")]), "none");
    assert_eq!(trouble(Some("Down"), true, &[]), "down Some(\"Down\") false");
    assert_eq!(trouble(Some("Down"), false, &[(down, "None")]), "down Some(\"Down\") true");
    assert_eq!(trouble(None, true, &[(down, "NoSchedule")]), "down None true");
    assert_eq!(trouble(Some("Active"), false, &[(down, "None")]), "none");
    assert_eq!(trouble(Some("Active"), true, &[(gone, "NoExecute")]), "degraded");
    assert_eq!(
        trouble(Some("Active"), false, &[("any", "None"), (gone, "NoExecute")]),
        "dranet.io/gone:NoExecute"
    );
}
