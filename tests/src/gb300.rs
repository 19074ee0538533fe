//! An Azure GB300 node as NVIDIA's DRA driver and upstream DRANET published it live:
//! `fixtures/aks-gb300`. Tests can create any number of such nodes.

use std::path::PathBuf;

use anyhow::Context;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::{binaries::in_tests, manifest};

/// The node that published the slices.
pub const LIVE_NODE: &str = "aks-gpu-45139532-vmss000081";

/// A file of the fixture: `resource-claim-template.yaml`, `device-classes.yaml`.
pub fn file(name: &str) -> PathBuf {
    in_tests("fixtures/aks-gb300").join(name)
}

/// The class of the GPUs, which their driver's own chart installs.
pub fn gpu_class() -> anyhow::Result<DynamicObject> {
    let classes = manifest::read(&file("device-classes.yaml"))?;
    let mut of_gpus =
        classes.into_iter().filter(|it| it.metadata.name.as_deref() == Some("gpu.nvidia.com"));
    of_gpus.next().context("the file has a class of GPUs")
}

/// The GPU slice for `node`, with its own name and GPU UUIDs.
pub fn gpu_slice(node: &str) -> anyhow::Result<DynamicObject> {
    let mut slice = slice_for("resourceslice-gpu.yaml", node)?;
    let devices = slice.data["spec"]["devices"].as_array_mut().context("a slice has devices")?;
    for device in devices {
        let uuid = &mut device["attributes"]["uuid"]["string"];
        let live = uuid.as_str().context("a GPU has a uuid")?;
        *uuid = Value::String(gpu_uuid(live, node));
    }
    Ok(slice)
}

/// Upstream DRANET's NIC slice for `node`.
pub fn nic_slice(node: &str) -> anyhow::Result<DynamicObject> {
    slice_for("resourceslice-dranet.yaml", node)
}

/// The UUIDs of the GPUs of [`LIVE_NODE`].
pub fn live_gpu_uuids() -> anyhow::Result<Vec<String>> {
    let slice = gpu_slice(LIVE_NODE)?;
    let devices = slice.data["spec"]["devices"].as_array().context("a slice has devices")?;
    let uuid = |device: &Value| device["attributes"]["uuid"]["string"].as_str().map(str::to_owned);
    devices.iter().map(uuid).collect::<Option<_>>().context("a GPU has a uuid")
}

/// The UUID on `node` for the GPU with UUID `live` on [`LIVE_NODE`].
///
/// The last group is replaced by one that depends on the node's name.
pub fn gpu_uuid(live: &str, node: &str) -> String {
    match live.rsplit_once('-') {
        Some((head, tail)) if node != LIVE_NODE => {
            let text = tail.bytes().chain(node.bytes());
            format!("{head}-{:012x}", fnv1a(text) & 0xffff_ffff_ffff)
        }
        _ => live.to_owned(),
    }
}

fn slice_for(file_name: &str, node: &str) -> anyhow::Result<DynamicObject> {
    let path = file(file_name);
    let mut objects = manifest::read(&path)?;
    let mut slice = objects.pop().with_context(|| format!("`{}` is empty", path.display()))?;
    let driver = slice.data["spec"]["driver"].as_str().context("a slice has a driver")?;
    slice.metadata.name = Some(format!("{node}-{driver}"));
    slice.metadata.generate_name = None;
    slice.data["spec"]["nodeName"] = node.into();
    slice.data["spec"]["pool"]["name"] = node.into();
    Ok(slice)
}

/// 64-bit FNV-1a, which never changes between versions.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn uuids(node: &str) -> Vec<String> {
        let slice = gpu_slice(node).unwrap();
        let devices = slice.data["spec"]["devices"].as_array().unwrap();
        let uuid = |device: &Value| device["attributes"]["uuid"]["string"].as_str().unwrap().into();
        devices.iter().map(uuid).collect()
    }

    #[test]
    fn the_live_node_keeps_its_uuids() {
        let live = manifest::read(&file("resourceslice-gpu.yaml")).unwrap();
        let of_live = &live[0].data["spec"]["devices"][0]["attributes"]["uuid"]["string"];
        assert_eq!(uuids(LIVE_NODE)[0], of_live.as_str().unwrap());
    }

    #[test]
    fn no_two_gpus_share_a_uuid() {
        let nodes = [LIVE_NODE, "gb300-0", "gb300-1", "gb300-10"];
        let all: BTreeSet<String> = nodes.iter().flat_map(|node| uuids(node)).collect();
        assert_eq!(all.len(), 4 * nodes.len());
        assert!(all.iter().all(|uuid| uuid.len() == "GPU-".len() + 36), "{all:?}");
    }

    #[test]
    fn a_slice_names_only_its_node() {
        for slice in [gpu_slice("gb300-0").unwrap(), nic_slice("gb300-0").unwrap()] {
            assert_eq!(slice.data["spec"]["nodeName"], "gb300-0");
            assert!(!serde_json::to_string(&slice.data).unwrap().contains(LIVE_NODE));
        }
    }
}
