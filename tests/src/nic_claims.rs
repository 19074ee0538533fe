//! Claims for a NIC with an address of a `NicPool`, allocated as the scheduler does it.

use anyhow::Context;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use node_driver::{
    model::claim::ClaimRef,
    prepare::claim::{AllocatedClaim, AllocatedDevice},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The NIC of every claim.
pub const DEVICE: &str = "net1";
const REQUEST: &str = "nic";

/// Creates a claim for a NIC that is not allocated.
pub async fn create(api: &Api<ResourceClaim>, name: &str) -> anyhow::Result<ResourceClaim> {
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {
        "requests": [{"name": REQUEST, "exactly": {"deviceClassName": "dranet.net"}}]}}});
    let claim = serde_json::from_value(claim)?;
    api.create(&PostParams::default(), &claim).await.with_context(|| format!("claim `{name}`"))
}

/// Allocates the NIC of a node to a claim, with a pool in its configuration.
pub async fn allocate(
    api: &Api<ResourceClaim>,
    name: &str,
    node: &str,
    pool: &str,
) -> anyhow::Result<ResourceClaim> {
    let result = json!({"request": REQUEST, "driver": "dra.net", "pool": node, "device": DEVICE});
    let config = json!({"source": "FromClaim", "requests": [], "opaque": {
        "driver": "dra.net", "parameters": parameters(pool)}});
    set_allocation(api, name, json!({"devices": {"results": [result], "config": [config]}})).await
}

/// Removes the allocation of a claim, as when its last pod is gone.
pub async fn deallocate(api: &Api<ResourceClaim>, name: &str) -> anyhow::Result<ResourceClaim> {
    set_allocation(api, name, Value::Null).await
}

async fn set_allocation(
    api: &Api<ResourceClaim>,
    name: &str,
    allocation: Value,
) -> anyhow::Result<ResourceClaim> {
    let status = Patch::Merge(json!({"status": {"allocation": allocation}}));
    let patched = api.patch_status(name, &PatchParams::default(), &status).await;
    patched.with_context(|| format!("the status of claim `{name}`"))
}

/// The claim as the driver of the node reads it.
pub fn as_read(claim: &ResourceClaim, node: &str, pool: &str) -> AllocatedClaim {
    let claim = ClaimRef {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
    };
    let device = AllocatedDevice {
        request: REQUEST.to_owned(),
        pool: node.to_owned(),
        device: DEVICE.to_owned(),
        place: None,
        share_id: None,
        consumed: BTreeMap::new(),
        is_whole: false,
        admin_access: false,
        parameters: Some(parameters(pool)),
        claimed: None,
        address: None,
    };
    let (devices, pods, others) = (vec![device], Vec::new(), Vec::new());
    AllocatedClaim { claim, pods, pod_claim_name: None, devices, others }
}

/// The address that the driver has reserved for the claim.
pub fn address(claim: &AllocatedClaim) -> anyhow::Result<String> {
    let [device] = &claim.devices[..] else { anyhow::bail!("{:?}", claim.devices) };
    let parameters = device.parameters.as_ref().context("no parameters")?;
    let addresses = parameters["interface"]["addresses"].as_array().context("no addresses")?;
    let [address] = &addresses[..] else { anyhow::bail!("{parameters}") };
    Ok(address.as_str().context("an address is a text")?.to_owned())
}

fn parameters(pool: &str) -> Value {
    json!({"interface": {"pool": pool}})
}
