//! What a claim's status says of our devices (KEP-4817): interface, hardware
//! address, addresses, and whether they are ready. A pure rendering of the plan,
//! and one server-side apply.
//!
//! Nothing waits for it: a pod runs whether its status could be written or not.
//! The rights are `patch` on `resourceclaims/status` and `associated-node:patch`
//! on `resourceclaims/driver` for this driver's name.

use crate::prepare::plan::{Plan, PlannedDevice, PlannedLink};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;

/// How often is tried, and how long is waited in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// How far the devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Promised to the kubelet; interfaces are with the host still.
    Prepared,
    /// Interfaces are in the pod.
    Attached,
}

/// The claim's status as this driver has it, for a server-side apply.
pub fn render(plan: &Plan, driver: &str, progress: Progress, now: Timestamp) -> Value {
    let device = |device: &PlannedDevice| {
        let mut entry = json!({
            "driver": driver,
            "pool": device.pool,
            "device": device.device,
            "conditions": conditions(device, progress, now),
        });
        if let Some(share) = &device.share_id {
            entry["shareID"] = json!(share);
        }
        if let Some(link) = &device.link {
            entry["networkData"] = network_data(link);
        }
        entry
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": plan.claim.namespace,
            "name": plan.claim.name,
            "uid": plan.claim.uid,
        },
        "status": {"devices": plan.devices.iter().map(device).collect::<Vec<_>>()},
    })
}

fn conditions(device: &PlannedDevice, progress: Progress, now: Timestamp) -> Vec<Value> {
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now,
        })
    };
    if device.link.is_none() {
        let message = "the container has its character devices";
        return vec![condition("Ready", true, "RDMAOnlyDeviceReady", message)];
    }
    let attached = progress == Progress::Attached;
    let (reason, message) = if attached {
        ("NetworkDeviceReady", "the interface is in the pod")
    } else {
        ("NetworkDevicePrepared", "the interface goes into the pod when its container starts")
    };
    ["Ready", "NetworkReady"].map(|kind| condition(kind, attached, reason, message)).into()
}

/// An interface as the API tells it (`NetworkDeviceData`).
pub(crate) fn network_data(link: &PlannedLink) -> Value {
    let interface = &link.config.interface;
    let address = interface.hardware_addr.as_ref().or(link.host.hardware_addr.as_ref());
    let ips: Vec<_> = interface.addresses.iter().map(ToString::to_string).collect();
    let mut data = json!({"interfaceName": link.name, "ips": ips});
    if let Some(address) = address {
        data["hardwareAddress"] = json!(address);
    }
    data
}

/// Applies it, some times.
pub async fn publish(client: Client, driver: String, plan: Plan, progress: Progress) {
    let claims: Api<ResourceClaim> = Api::namespaced(client, &plan.claim.namespace);
    let status = render(&plan, &driver, progress, Timestamp::now());
    let params = PatchParams::apply(&driver).force();
    let mut pause = tokio::time::interval(PAUSE);
    for left in (0..TRIES).rev() {
        pause.tick().await;
        let applied = claims.patch_status(&plan.claim.name, &params, &Patch::Apply(&status)).await;
        let claim = &plan.claim;
        match applied {
            Ok(_) => return,
            // The claim is gone, or is another's: there is nothing to say.
            Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => return,
            Err(error) if left == 0 => tracing::warn!(%claim, %error, "Claim status not written"),
            Err(_) => {}
        }
    }
}
