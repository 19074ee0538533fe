//! DeviceTaintRules that keep devices from new pods while pods that had them leave. A cluster-wide object
//! cannot have a pod as its owner, so they are found by a label.

use cluster_model::names::TAINT_KEPT;
use dra_allocator::DeviceId;
use k8s_openapi::api::resource::v1::{
    DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What the names of all rules begin with.
const PREFIX: &str = "dranet-kept-";

/// The rule that keeps a device. The label `mark` and the taint have the value `id`.
pub fn rule(mark: &str, id: &str, device: &DeviceId) -> DeviceTaintRule {
    let metadata = ObjectMeta {
        name: Some(name(id, device)),
        labels: Some(BTreeMap::from([(mark.to_owned(), id.to_owned())])),
        ..ObjectMeta::default()
    };
    let taint = DeviceTaint {
        key: TAINT_KEPT.to_owned(),
        value: Some(id.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let selector = DeviceTaintSelector {
        driver: Some(device.driver.to_string()),
        pool: Some(device.pool.to_string()),
        device: Some(device.device.to_string()),
    };
    let spec = DeviceTaintRuleSpec { device_selector: Some(selector), taint };
    DeviceTaintRule { metadata, spec, ..DeviceTaintRule::default() }
}

fn name(id: &str, device: &DeviceId) -> String {
    let DeviceId { driver, pool, device } = device;
    let digest = Sha256::digest(format!("{id}/{driver}/{pool}/{device}"));
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, of_digest)| *byte = of_digest);
    format!("{PREFIX}{:032x}", u128::from_be_bytes(bytes))
}
