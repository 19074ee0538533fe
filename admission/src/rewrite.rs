//! The pod as it will be: the claim comes, the GPU limits go, all else stays.
//!
//! Works on the JSON of the pod, so that fields which this version of the API
//! types does not know are left as they are.

use crate::demand::Grant;
use crate::intent::extended_resources;
use crate::template;
use cluster_model::names::annotation;
use serde_json::{Value, json};

/// Name of our claim in `spec.resourceClaims` and in the container.
pub const CLAIM: &str = "dranet";

/// Where containers with resources stand.
const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// Adds the claim and the note to the pod and takes its GPU limits out.
pub fn with_claim(pod: &Value, grants: &[Grant], template: &str, note: &str) -> Value {
    let mut pod = without_extended_resources(pod);
    push(
        &mut pod["spec"]["resourceClaims"],
        json!({
            "name": CLAIM,
            "resourceClaimTemplateName": template,
        }),
    );
    for list in CONTAINER_LISTS {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            let name = container["name"].as_str().unwrap_or_default();
            if let Some(grant) = grants.iter().find(|grant| grant.container == name) {
                give(container, grant);
            }
        }
    }
    pod["metadata"]["annotations"][annotation::PLAN] = note.into();
    pod
}

/// Lists the claim, or the requests of it, in a container.
fn give(container: &mut Value, grant: &Grant) {
    let claims = &mut container["resources"]["claims"];
    match &grant.requests {
        None => push(claims, json!({ "name": CLAIM })),
        Some(requests) => {
            for request in requests {
                push(claims, json!({ "name": CLAIM, "request": request }));
            }
        }
    }
}

/// Takes the limits and requests that the claim stands for out of every
/// container: defaulting has copied limits to requests before us, and a
/// `LimitRange` may bring them back between two calls.
pub fn without_extended_resources(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in CONTAINER_LISTS {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for resources in containers.iter_mut().filter_map(|entry| entry.get_mut("resources")) {
            strip(resources, "limits");
            strip(resources, "requests");
        }
    }
    pod
}

/// Template named by our claim in the pod, if the pod has been rewritten.
///
/// # Errors
/// The reference that the claim of our name holds, if it is not to a template
/// of ours.
pub fn own_template(pod: &Value) -> Result<Option<&str>, String> {
    let claims = pod["spec"]["resourceClaims"].as_array();
    let Some(claim) = claims.into_iter().flatten().find(|claim| claim["name"] == CLAIM) else {
        return Ok(None);
    };
    match claim["resourceClaimTemplateName"].as_str() {
        Some(name) if template::is_ours(name) => Ok(Some(name)),
        _ => Err(claim.to_string()),
    }
}

fn strip(resources: &mut Value, list: &str) {
    let Some(amounts) = resources.get_mut(list).and_then(Value::as_object_mut) else { return };
    for name in extended_resources() {
        amounts.remove(name);
    }
    if amounts.is_empty() {
        resources.as_object_mut().map(|resources| resources.remove(list));
    }
}

/// Appends to an array that may be absent; makes the objects above it.
fn push(array: &mut Value, entry: Value) {
    match array.as_array_mut() {
        Some(entries) => entries.push(entry),
        None => *array = Value::Array(vec![entry]),
    }
}

/// The smallest JSON patch from one pod to the other, with each parent object
/// made before its children.
pub fn patch(from: &Value, to: &Value) -> json_patch::Patch {
    json_patch::diff(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(container: &str) -> Vec<Grant> {
        vec![Grant { container: container.to_owned(), requests: None }]
    }

    const TEMPLATE: &str = "dranet-0123456789abcdef";

    fn pod() -> Value {
        json!({
            "metadata": { "name": "a", "annotations": { "dranet.io/aligned-nics": "2" } },
            "spec": {
                "initContainers": [{ "name": "wait", "resources": { "limits": { "nvidia.com/gpu": "1" } } }],
                "containers": [
                    { "name": "side", "resources": {} },
                    { "name": "nccl", "newField": 1, "resources": {
                        "limits": { "nvidia.com/gpu": "1", "memory": "8Gi" },
                        "requests": { "nvidia.com/gpu": "1" },
                    } },
                ],
                "resourceClaims": [{ "name": "mine", "resourceClaimName": "x" }],
            },
        })
    }

    #[test]
    fn the_claim_comes_and_the_limits_go() {
        let after = with_claim(&pod(), &to("nccl"), TEMPLATE, "why");
        insta::assert_yaml_snapshot!(after);
    }

    #[test]
    fn the_patch_leads_to_the_same_pod() {
        let (before, after) = (pod(), with_claim(&pod(), &to("nccl"), TEMPLATE, "why"));
        let mut patched = before.clone();
        json_patch::patch(&mut patched, &patch(&before, &after)).unwrap();
        assert_eq!(patched, after);
    }

    #[test]
    fn a_pod_without_any_of_the_fields_is_rewritten_too() {
        let bare = json!({ "metadata": {}, "spec": { "containers": [{ "name": "c" }] } });
        let after = with_claim(&bare, &to("c"), TEMPLATE, "why");
        assert_eq!(
            after["spec"]["containers"][0]["resources"]["claims"],
            json!([{ "name": CLAIM }])
        );
        assert_eq!(own_template(&after), Ok(Some(TEMPLATE)));
    }

    #[test]
    fn our_claim_is_told_from_others_of_its_name() {
        assert_eq!(own_template(&pod()), Ok(None));
        let mut foreign = pod();
        foreign["spec"]["resourceClaims"] = json!([{ "name": CLAIM, "resourceClaimName": "x" }]);
        assert!(own_template(&foreign).is_err());
    }
}
