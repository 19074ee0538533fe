//! The objects of the measured clusters: pods of four shapes, and claims that hold about half of
//! the devices.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{Scope, random::Random};

/// The number of GPUs, and of NICs, per pod.
pub(crate) const SHAPES: [usize; 4] = [1, 2, 4, 8];
/// The number of parallel requests to the API server.
pub(crate) const TOGETHER: usize = 32;
const GPUS: &str = "gpu.nvidia.com";
const NICS: &str = "dra.net";

/// The devices of every node, by driver, in the order of their slice.
#[derive(Debug)]
pub(crate) struct Devices {
    gpus: Vec<String>,
    nics: Vec<String>,
}

impl Devices {
    /// The devices of one node; all nodes have the same.
    pub(crate) async fn new(client: Client, node: &str) -> anyhow::Result<Self> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let slices = Api::<ResourceSlice>::all(client).list(&of_node).await?;
        let names = |driver: &str| -> anyhow::Result<Vec<String>> {
            let mut own = slices.iter().filter(|slice| slice.spec.driver == driver);
            let devices = own.next().with_context(|| format!("no slice of {driver}"))?;
            Ok(devices.spec.devices.iter().flatten().map(|device| device.name.clone()).collect())
        };
        Ok(Self { gpus: names(GPUS)?, nics: names(NICS)? })
    }
}

/// The allocation of a claim: a random half of a node's devices, at least one.
fn allocation(node: &str, devices: &Devices, bits: u64) -> Value {
    let gpus = devices.gpus.iter().map(|name| (GPUS, name));
    let all: Vec<_> = gpus.chain(devices.nics.iter().map(|name| (NICS, name))).collect();
    let of = |bits: u64| -> Vec<Value> {
        let held = all.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        held.map(|(_, (driver, device))| json!({"request": "r", "driver": driver, "pool": node, "device": device})).collect()
    };
    let mut results = of(bits >> 20);
    if results.is_empty() {
        results = of(1);
    }
    json!({"status": {"allocation": {"devices": {"results": results}}}})
}

/// Creates a claim on each of the nodes.
pub(crate) async fn use_half(
    scope: &Scope,
    nodes: &[String],
    devices: &Devices,
    random: &mut Random,
) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    let claim = |node: &String| -> anyhow::Result<ResourceClaim> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": node},
            "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": GPUS}},
            ]}},
        }))?)
    };
    let all: Vec<_> = nodes.iter().map(claim).collect::<anyhow::Result<_>>()?;
    let create =
        async |claim: &ResourceClaim| claims.create(&PostParams::default(), claim).await.map(drop);
    stream::iter(&all).map(create).buffer_unordered(TOGETHER).try_collect::<()>().await?;
    change(scope, nodes, devices, random).await
}

/// Changes the devices of each of these claims.
pub(crate) async fn change(
    scope: &Scope,
    nodes: &[String],
    devices: &Devices,
    random: &mut Random,
) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    let params = PatchParams::default();
    // An allocation is immutable, so it is removed first.
    let none = Patch::Merge(json!({"status": {"allocation": null}}));
    let bits: Vec<_> = nodes.iter().map(|node| (node, random.bits())).collect();
    let change = async |(node, bits): (&String, u64)| -> kube::Result<()> {
        claims.patch_status(node, &params, &none).await?;
        let patch = Patch::Merge(allocation(node, devices, bits));
        claims.patch_status(node, &params, &patch).await.map(drop)
    };
    stream::iter(bits).map(change).buffer_unordered(TOGETHER).try_collect::<()>().await?;
    Ok(())
}

/// Changes a class, which affects every node.
pub(crate) async fn touch_class(client: Client, number: usize) -> anyhow::Result<()> {
    let note =
        json!({"metadata": {"annotations": {"tests.dranet.io/touched": number.to_string()}}});
    let classes: Api<DeviceClass> = Api::all(client);
    classes.patch("dranet.net", &PatchParams::default(), &Patch::Merge(note)).await?;
    Ok(())
}

/// The claim of a pod of this shape: on one NUMA node if that has enough devices.
pub(crate) fn spec(count: usize) -> Value {
    let request = |name: &str, class: &str| json!({"name": name, "exactly": {"deviceClassName": class, "count": count}});
    let mut devices = json!({"requests": [request("gpu", GPUS), request("nic", "dranet.net")]});
    if count <= 4 {
        devices["constraints"] = json!([
            {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"},
        ]);
    }
    json!({"devices": devices})
}
