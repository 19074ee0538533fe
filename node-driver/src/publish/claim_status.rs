//! Renders the status of this driver's devices in a claim (KEP-4817): interface, hardware
//! address, addresses, and whether they are ready. Rendered from the plan alone; `writer`
//! writes it.

mod writer;

pub(crate) use writer::StatusWriter;

use crate::decide::network_data::network_data;
use crate::model::plan::{Plan, PlannedDevice};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The progress of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Prepared; the interfaces are still on the host.
    Prepared,
    /// Interfaces are in the pod.
    Attached,
}

/// The claim's status for a server-side apply by this driver.
pub fn render(plan: &Plan, driver: &str, progress: Progress, now: Timestamp) -> Value {
    let devices = plan.devices.iter().map(|device| {
        let conditions = conditions(device, progress, now);
        entry(plan, device, driver, &conditions)
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": plan.claim.namespace,
            "name": plan.claim.name,
            "uid": plan.claim.uid,
        },
        "status": {"devices": devices.collect::<Vec<_>>()},
    })
}

/// The status of one device.
fn entry(plan: &Plan, device: &PlannedDevice, driver: &str, conditions: &[Value]) -> Value {
    let mut entry = json!({
        "driver": driver,
        "pool": device.pool,
        "device": device.allocated(),
        "conditions": conditions,
    });
    if let Some(share) = &device.share_id {
        entry["shareID"] = json!(share);
    }
    if device.place.is_some() {
        entry["data"] = json!({
            "nic": device.device,
            "pciBusID": device.pci_bus_id,
            "rdmaDevice": device.rdma.as_ref().map(|rdma| &rdma.name),
            // The extender must know which GPUs of the device plugin are in use.
            "gpus": plan.plugin_gpus.iter().map(|gpu| gpu.pci_bus_id).collect::<Vec<_>>(),
        });
    }
    if let Some(link) = &device.link {
        entry["networkData"] = network_data(link);
    }
    entry
}

fn conditions(device: &PlannedDevice, progress: Progress, now: Timestamp) -> Vec<Value> {
    let attached = progress == Progress::Attached || !device.moves();
    let rdma = device.moving_rdma().is_some();
    let (reason, message) = match (device.link.is_some(), attached, rdma) {
        (false, true, false) => ("RDMAOnlyDeviceReady", "the container has its character devices"),
        (false, true, true) => ("RDMAOnlyDeviceReady", "the RDMA device is in the pod"),
        (false, false, _) => (
            "RDMAOnlyDevicePrepared",
            "the RDMA device goes into the pod when its container starts",
        ),
        (true, true, _) => ("NetworkDeviceReady", "the interface is in the pod"),
        (true, false, _) => {
            ("NetworkDevicePrepared", "the interface goes into the pod when its container starts")
        }
    };
    let kinds = [
        Some("Ready"),
        device.link.is_some().then_some("NetworkReady"),
        rdma.then_some("RDMALinkReady"),
    ];
    let kinds = kinds.into_iter().flatten();
    let conditions = kinds.map(|kind| {
        json!({
            "type": kind,
            "status": if attached { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        })
    });
    conditions.collect()
}
