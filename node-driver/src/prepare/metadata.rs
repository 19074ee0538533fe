//! Device metadata files (KEP-5304): one file per request in the container, from which a
//! program learns its devices without the API. Rendered from the plan alone.
//!
//! Follows `k8s.io/dynamic-resource-allocation/api/metadata` and the protocol in the
//! Kubernetes documentation: a stream with the same object once per version, newest
//! first.

use crate::decide::network_data::network_data;
use crate::model::plan::{Plan, PlannedDevice};
use crate::prepare::claim::base_request;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Directory in containers for the metadata files of all drivers.
const CONTAINER_DIR: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// The versions written, newest first: Kubernetes 1.37's and 1.36's.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// The metadata never changes after preparation.
const GENERATION: u32 = 1;

/// The requests of a claim that have a device of this driver, without subrequests.
pub fn requests(plan: &Plan) -> BTreeSet<&str> {
    let requests = plan.devices.iter().map(|device| base_request(&device.request));
    // The names are used in file names. The API server accepts only labels; check anyway.
    requests.filter(|request| is_label(request)).collect()
}

/// Path of a request's file in the container. A claim from a template goes by its name in
/// the pod. `None` if the claim's name is invalid.
pub fn container_path(plan: &Plan, driver: &str, request: &str) -> Option<String> {
    let in_pod = plan.pod_claim_name.as_deref().filter(|name| is_label(name));
    let claim = match in_pod {
        Some(name) => format!("resourceclaimtemplates/{name}"),
        None => format!("resourceclaims/{}", subdomain(&plan.claim.name)?),
    };
    Some(format!("{CONTAINER_DIR}/{claim}/{request}/{driver}-metadata.json"))
}

/// Content of the file of one request.
pub fn stream(plan: &Plan, driver: &str, request: &str) -> String {
    let devices = plan.devices.iter().filter(|device| base_request(&device.request) == request);
    let mut requests: Vec<Value> = Vec::new();
    for device in devices {
        let entry = entry(plan, driver, device);
        match requests.iter_mut().find(|known| known["name"] == device.request.as_str()) {
            Some(known) => known["devices"].as_array_mut().into_iter().for_each(|devices| {
                devices.push(entry.clone());
            }),
            None => requests.push(json!({"name": device.request, "devices": [entry]})),
        }
    }
    let objects = VERSIONS.iter().map(|version| {
        let mut object = json!({
            "kind": "DeviceMetadata",
            "apiVersion": format!("metadata.resource.k8s.io/{version}"),
            "metadata": {
                "name": plan.claim.name,
                "namespace": plan.claim.namespace,
                "uid": plan.claim.uid,
                "generation": GENERATION,
            },
            "requests": requests,
        });
        if let Some(name) = &plan.pod_claim_name {
            object["podClaimName"] = json!(name);
        }
        format!("{object:#}\n")
    });
    objects.collect()
}

fn entry(plan: &Plan, driver: &str, device: &PlannedDevice) -> Value {
    let mut entry = Map::new();
    entry.insert("driver".to_owned(), json!(driver));
    entry.insert("pool".to_owned(), json!(device.pool));
    entry.insert("name".to_owned(), json!(device.allocated()));
    let attributes = plan.wiring.attributes.get(&device.device);
    if let Some(attributes) = attributes.filter(|attributes| !attributes.is_empty()) {
        entry.insert("attributes".to_owned(), json!(attributes));
    }
    if let Some(link) = &device.link {
        entry.insert("networkData".to_owned(), network_data(link));
    }
    Value::Object(entry)
}

/// Whether the text is a DNS label, as request names are.
fn is_label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The name, if it is a DNS subdomain, as claim names are.
fn subdomain(name: &str) -> Option<&str> {
    name.split('.').all(is_label).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["", ".", "..", "a/b", "../etc", &"a".repeat(64)] {
            assert!(!is_label(name), "{name}");
        }
        assert!(is_label("nics") && is_label("nic-0"));
        assert_eq!(
            [subdomain("a.b-1"), subdomain("a..b"), subdomain("..")],
            [Some("a.b-1"), None, None]
        );
    }
}
