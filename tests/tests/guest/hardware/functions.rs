//! Virtual functions that the driver creates and recreates, and their settings on the physical
//! function, with `igb`. The driver is killed in the middle of each step.

use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tests::{
    Check, Scope, eventually,
    guest::node::GuestNode,
    node::{device_name, pods},
};

use super::{SLOW, told};

/// The operator requests two virtual functions of the last NIC.
pub(super) const TWO: &str = "--virtual-functions numVfs=2,vendor=8086,pfName=rail*";

/// Then three.
const THREE: &str = "--virtual-functions numVfs=3,rootDevice=0000:86:00.0";

/// Prints the number of virtual functions.
const NUMBER: &str = "cat /sys/bus/pci/devices/0000:86:00.0/sriov_numvfs";

/// The addresses of three virtual functions.
const PLACES: [&str; 3] = ["0000:86:10.0", "0000:86:10.2", "0000:86:10.4"];

/// Prints the settings of the first virtual function, if the physical function is on the host.
const SEEN: &str = "ip link show rail3 2>&1 | grep 'vf 0 ' || true";

/// Waits until this number of them exists, is published as virtual functions, and has an event on
/// the Node.
pub(super) async fn are_made(scope: &Scope, node: &GuestNode, number: usize) -> anyhow::Result<()> {
    let expected: Vec<_> = PLACES.into_iter().take(number).map(device_name).collect();
    eventually(SLOW, async || {
        let there = node.guest.run(NUMBER).await?;
        let names = published(scope, node).await?;
        let are = there.trim() == number.to_string() && names == expected;
        Ok(Check::that(are, || {
            let log = node.guest.log("node-driver");
            format!("{} functions, published: {names:?}\n{log}", there.trim())
        }))
    })
    .await?;
    let message = format!("0000:86:00.0 (rail3) has {number} virtual functions");
    is_told(scope, node, "VirtualFunctionsCreated", &message).await
}

/// The devices of the node's slices that are virtual functions.
async fn published(scope: &Scope, node: &GuestNode) -> anyhow::Result<Vec<String>> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let own = ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    let slices = slices.list(&own).await?.items;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let is_virtual = |device: &Device| {
        let mut attributes = device.attributes.iter().flatten();
        attributes.any(|(name, it)| name.ends_with("isSriovVf") && it.bool == Some(true))
    };
    let mut names: Vec<_> = devices.filter(is_virtual).map(|device| device.name).collect();
    names.sort();
    Ok(names)
}

async fn is_told(
    scope: &Scope,
    node: &GuestNode,
    reason: &str,
    message: &str,
) -> anyhow::Result<()> {
    eventually(SLOW, async || {
        let said = pods::node_events(scope, &node.name, reason).await?;
        Ok(Check::that(said.contains(message), || format!("`{message}` is not said: {said}")))
    })
    .await
}

/// A claim of the first function with these settings, and a pod that has it.
async fn pod_with(
    scope: &Scope,
    node: &GuestNode,
    name: &str,
    settings: Value,
) -> anyhow::Result<()> {
    let interface = json!({"name": "net1", "addresses": ["192.168.7.9/24"]});
    let parameters = Some(json!({"interface": interface, "virtualFunction": settings}));
    pod_of(scope, node, name, PLACES[0], parameters).await
}

async fn pod_of(
    scope: &Scope,
    node: &GuestNode,
    name: &str,
    place: &str,
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    let device = device_name(place);
    pods::allocated_claim(scope, name, &node.name, &device, parameters).await?;
    let claim = json!({"resourceClaimName": name});
    pods::create_bound(scope, pods::pod(name, &node.name, claim)?, &node.name).await.map(drop)
}

/// Tests settings on the physical function while it is on the host. `igb` has no setting for the
/// link.
pub(super) async fn are_set_and_restored(scope: &Scope, node: &GuestNode) -> anyhow::Result<()> {
    let before = node.guest.run(SEEN).await?;
    // Killed after the first of three settings, then after the first was undone.
    dies_at(node, "prepare:function:set", async || {
        let settings = json!({"vlan": 7, "vlanQos": 3, "trust": true, "spoofCheck": false});
        pod_with(scope, node, "tagged", settings).await
    })
    .await?;
    assert_ne!(node.guest.run(SEEN).await?, before, "it was killed after a setting");
    dies_at(node, "unprepare:function:set", async || Ok(())).await?;
    node.restart_driver(TWO).await?;
    told(node, scope, "tagged").await?;
    let set = node.guest.run(SEEN).await?;
    for expected in ["vlan 7", "qos 3", "spoof checking off", "trust on"] {
        assert!(set.contains(expected), "`{expected}` is not in {set}, before {before}");
    }
    node.guest.kill("node-driver").await?;
    // The pod is gone before the kubelet has unprepared its claim.
    dies_at(node, "unprepare:function:set", async || pods::delete_soon(scope, "tagged").await)
        .await?;
    dies_at(node, "unprepare:functions:after", async || Ok(())).await?;
    node.restart_driver(TWO).await?;
    pods::gone(scope, "tagged").await?;
    is_as_before(node, &before).await?;

    pod_with(scope, node, "linked", json!({"vlan": 7, "linkState": "enable"})).await?;
    eventually(SLOW, async || {
        let events = pods::events(scope, "linked").await?;
        let is_named = format!("{events:?}").contains("does not set `virtualFunction.linkState`");
        Ok(Check::that(is_named, || format!("{events:?}")))
    })
    .await?;
    assert_eq!(node.guest.run(SEEN).await?, before, "what was set before the refusal");
    pods::delete(scope, "linked").await?;
    settings_wait_for_their_physical_function(scope, node, &before).await
}

/// While a pod has the physical function, no other pod gets the virtual one.
async fn settings_wait_for_their_physical_function(
    scope: &Scope,
    node: &GuestNode,
    before: &str,
) -> anyhow::Result<()> {
    pod_with(scope, node, "left", json!({"vlan": 9})).await?;
    told(node, scope, "left").await?;
    pod_of(scope, node, "holder", "0000:86:00.0", None).await?;
    told(node, scope, "holder").await?;
    pods::delete(scope, "left").await?;
    is_told(scope, node, "InterfaceNotRestored", "physical function `0000:86:00.0` is in a pod")
        .await?;
    pod_of(scope, node, "next", PLACES[0], None).await?;
    eventually(SLOW, async || {
        let events = pods::events(scope, "next").await?;
        let is_refused = format!("{events:?}").contains("has settings of claim");
        Ok(Check::that(is_refused, || format!("{events:?}")))
    })
    .await?;
    pods::delete(scope, "holder").await?;
    told(node, scope, "next").await?;
    is_as_before(node, before).await?;
    pods::delete(scope, "next").await?;
    // The pod is gone before the kubelet has unprepared its claim.
    eventually(SLOW, async || {
        let links = node.guest.run("ls /sys/class/net").await?;
        let is_back = links.lines().any(|link| link == "vf0");
        Ok(Check::that(is_back, || format!("the host has {links}")))
    })
    .await
}

async fn is_as_before(node: &GuestNode, before: &str) -> anyhow::Result<()> {
    eventually(SLOW, async || {
        let now = node.guest.run(SEEN).await?;
        Ok(Check::that(now == before, || format!("{now}, before {before}")))
    })
    .await
}

/// Starts a driver that dies at this point during the step.
async fn dies_at(
    node: &GuestNode,
    point: &str,
    step: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // It may run, or have died before.
    node.guest.run("kill -9 $(cat /run/node-driver.pid) 2>/dev/null || true").await?;
    node.restart_driver(&format!("{TWO} --kill-at {point}")).await?;
    step().await?;
    node.driver_dies().await
}

/// If the operator requests another number while a pod has one of them, nothing changes. When no
/// claim has one any more, they are recreated, even if the driver dies after removing them.
pub(super) async fn others_are_made_when_nobody_has_one(
    scope: &Scope,
    node: &GuestNode,
) -> anyhow::Result<()> {
    pod_of(scope, node, "busy", PLACES[1], None).await?;
    told(node, scope, "busy").await?;
    node.guest.kill("node-driver").await?;
    node.restart_driver(&format!("{THREE} --kill-at functions:removed")).await?;
    let message = format!(
        "has 2 virtual functions instead of 3: a claim on this node has `{}`",
        device_name(PLACES[1])
    );
    is_told(scope, node, "VirtualFunctionsNotCreated", &message).await?;
    assert_eq!(node.guest.run(NUMBER).await?.trim(), "2");
    // Claims of deleted pods still have their devices.
    let claims: Api<ResourceClaim> = scope.api();
    for claim in claims.list(&ListParams::default()).await?.items {
        let name = claim.metadata.name.unwrap_or_default();
        if name != "busy" {
            claims.delete(&name, &DeleteParams::default()).await?;
        }
    }
    pods::delete(scope, "busy").await?;
    pods::delete_claim(scope, "busy").await?;
    node.driver_dies().await?;
    assert_eq!(node.guest.run(NUMBER).await?.trim(), "0");
    node.restart_driver(THREE).await?;
    are_made(scope, node, 3).await
}

/// A pod with the restrictions of the driver's pod can write the number: without capabilities,
/// under the runtime's seccomp filter and `AppArmor` profile, which denies writes below `/sys`
/// itself.
pub(super) async fn the_drivers_pod_may_write(
    scope: &Scope,
    node: &GuestNode,
) -> anyhow::Result<()> {
    const WRITE: &str = "file=$(cd /sys/bus/pci/devices/0000:86:00.0 && pwd -P)/sriov_numvfs
        echo 0 >$file || echo refused
        echo 0 >/host$file && echo TOLD
        exec sleep 100000";
    node.guest.kill("node-driver").await?;
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "confined"},
        "spec": {
            "nodeName": node.name,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "devices", "hostPath": {"path": "/sys/devices"}}],
            "containers": [{
                "name": "main",
                "image": pods::IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", WRITE],
                "securityContext": {
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "devices", "mountPath": "/host/sys/devices"}],
            }],
        },
    }))?;
    pods::create(scope, &pod).await?;
    let wrote = told(node, scope, "confined").await?;
    assert!(wrote.contains("refused"), "{wrote}");
    assert_eq!(node.guest.run(NUMBER).await?.trim(), "0");
    pods::delete(scope, "confined").await
}
