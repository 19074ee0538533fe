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
    let DeviceId { driver, pool, device } = device;
    rule_for(mark, id, [driver, pool], Some(device))
}

/// The rule that keeps all devices of a pool of a driver, which is a node of it.
pub fn rule_of_pool(mark: &str, id: &str, driver_and_pool: [&str; 2]) -> DeviceTaintRule {
    rule_for(mark, id, driver_and_pool, None)
}

fn rule_for(
    mark: &str,
    id: &str,
    [driver, pool]: [&str; 2],
    device: Option<&str>,
) -> DeviceTaintRule {
    let selected = format!("{id}/{driver}/{pool}/{}", device.unwrap_or_default());
    let metadata = ObjectMeta {
        name: Some(name(&selected)),
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
        driver: Some(driver.to_owned()),
        pool: Some(pool.to_owned()),
        device: device.map(str::to_owned),
    };
    let spec = DeviceTaintRuleSpec { device_selector: Some(selector), taint };
    DeviceTaintRule { metadata, spec, ..DeviceTaintRule::default() }
}

/// A name that differs for what is selected by whom.
fn name(selected: &str) -> String {
    let digest = Sha256::digest(selected);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, of_digest)| *byte = of_digest);
    format!("{PREFIX}{:032x}", u128::from_be_bytes(bytes))
}
