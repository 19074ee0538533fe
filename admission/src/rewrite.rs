//! Rewrites a pod: adds the claim, removes the GPU limits, and keeps everything else.
//!
//! Works on the pod's JSON, so that fields unknown to this version of the API types are kept.

mod counted;
mod limits;

use crate::demand::Grant;
use crate::fabric::JoinedGroup;
use crate::intent::GpuResources;
use crate::template;
use cluster_model::compute_domain::{self, CHANNEL_CLAIM};
use cluster_model::names::{GATE_FABRIC, annotation, label, pod_group};
pub(crate) use counted::count;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The name of our claim in `spec.resourceClaims` and in containers.
pub const CLAIM: &str = "dranet";

/// The field of a pod's spec that names its `PodGroup`.
const SCHEDULING_GROUP: &str = "schedulingGroup";

/// The lists of containers with resources.
const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// Moves the GPU limits of the pod to an annotation, from which the original pod can be restored.
pub fn without_limits(pod: &Value, resources: &GpuResources) -> Value {
    let limits = limits::text(pod, resources);
    let mut pod = without_extended_resources(pod, resources);
    if let Some(limits) = limits {
        pod["metadata"]["annotations"][annotation::LIMITS] = limits.into();
    }
    pod
}

/// The same for a pod that was rewritten before. A pod whose GPUs a device plugin gives keeps its
/// limits.
pub fn without_claimed_resources(pod: &Value, resources: &GpuResources) -> Value {
    match pod["metadata"]["annotations"].get(annotation::LIMITS) {
        Some(_) => without_extended_resources(pod, resources),
        None => pod.clone(),
    }
}

/// Adds the claim and the note to a pod. If the claim is for GPUs too, the pod has no limits on them.
pub fn with_claim(pod: &Value, grants: &[Grant], template: &str, note: &str) -> Value {
    let mut pod = pod.clone();
    push(
        &mut pod["spec"]["resourceClaims"],
        json!({
            "name": CLAIM,
            "resourceClaimTemplateName": template,
        }),
    );
    for container in containers(&mut pod) {
        let name = container["name"].as_str().unwrap_or_default();
        if let Some(grant) = grants.iter().find(|grant| grant.container == name) {
            give(container, grant);
        }
    }
    let hash = request_hash(&pod);
    let annotations = &mut pod["metadata"]["annotations"];
    annotations[annotation::PLAN] = note.into();
    annotations[annotation::REQUEST_HASH] = hash.into();
    pod
}

/// Removes the note of a decision from a pod that admission does not decide on: it marks those that it
/// has decided on.
pub(crate) fn without_note(mut pod: Value) -> Value {
    if let Some(Value::Object(annotations)) = pod.pointer_mut("/metadata/annotations") {
        annotations.remove(annotation::PLAN);
    }
    pod
}

/// Returns true if the annotations of a rewritten pod differ from those that its claim was planned
/// from: it is an edited copy. A pod without the hash counts as unedited.
pub fn was_edited(pod: &Value) -> bool {
    let planned = pod["metadata"]["annotations"][annotation::REQUEST_HASH].as_str();
    planned.is_some_and(|planned| planned != request_hash(pod))
}

/// A hash of the annotations with which the pod requests devices.
fn request_hash(pod: &Value) -> String {
    let mut hash = Sha256::new();
    for key in annotation::asking() {
        if let Some(value) = pod["metadata"]["annotations"][key].as_str() {
            hash.update([key, "\0", value, "\0"].concat());
        }
    }
    let digest = hash.finalize();
    let digits = digest.iter().take(8).fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
    format!("{digits:016x}")
}

/// Adds the pod to a group and delays its scheduling: by a gate until the group's fabric is
/// chosen, or by naming a `PodGroup`, for which the scheduler waits. Removes the chosen fabric of
/// a pod that this one is a copy of.
pub(crate) fn join_group(pod: &mut Value, group: &JoinedGroup) {
    if let Some(Value::Object(annotations)) = pod.pointer_mut("/metadata/annotations") {
        annotations.remove(annotation::FABRIC_CHOSEN);
        annotations.remove(annotation::FABRIC_MOVES);
    }
    pod["metadata"]["labels"][label::FABRIC_GROUP] = group.label.as_str().into();
    if group.is_pod_group {
        pod["spec"][SCHEDULING_GROUP] = json!({ "podGroupName": pod_group(&group.label) });
    } else {
        push(&mut pod["spec"]["schedulingGates"], json!({ "name": GATE_FABRIC }));
    }
}

/// Adds a claim for the channel of a group's `ComputeDomain` to a pod and to its containers that get
/// devices.
pub(crate) fn join_compute_domain(pod: &mut Value, grants: &[Grant], group: &str) {
    let template = compute_domain::template(group);
    let claim = json!({ "name": CHANNEL_CLAIM, "resourceClaimTemplateName": template });
    push(&mut pod["spec"]["resourceClaims"], claim);
    for container in containers(pod) {
        let name = container["name"].as_str().unwrap_or_default();
        if grants.iter().any(|grant| grant.container == name) {
            push(&mut container["resources"]["claims"], json!({ "name": CHANNEL_CLAIM }));
        }
    }
}

/// Removes what [`join_compute_domain`] added.
fn leave_compute_domain(pod: &mut Value) {
    let mut claims = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let ours = claims.find(|claim| {
        let template = claim["resourceClaimTemplateName"].as_str();
        claim["name"] == CHANNEL_CLAIM
            && template.and_then(compute_domain::group_of_template).is_some()
    });
    if ours.is_none() {
        return;
    }
    remove(&mut pod["spec"], "resourceClaims", CHANNEL_CLAIM);
    for container in containers(pod) {
        if let Some(resources) = container.get_mut("resources") {
            remove(resources, "claims", CHANNEL_CLAIM);
        }
    }
}

/// Adds tolerations for nodes that are tainted to keep off pods without these resources. The API
/// server's plugin `ExtendedResourceToleration` adds the same tolerations to pods with limits, but
/// not to this pod, whose GPUs no limit names.
pub fn tolerate(pod: &mut Value, resources: &[&str]) {
    for resource in resources {
        let tolerations = &mut pod["spec"]["tolerations"];
        let is_there = tolerations.as_array().into_iter().flatten().any(|entry| {
            entry["key"] == *resource
                && entry["operator"] == "Exists"
                && matches!(entry["effect"].as_str(), None | Some("NoSchedule"))
        });
        if !is_there {
            let effect = "NoSchedule";
            push(tolerations, json!({ "key": resource, "operator": "Exists", "effect": effect }));
        }
    }
}

/// Limits a pod to nodes with this label. A pod that is decided again keeps it, and so keeps the type
/// of machine that its claim is for.
pub(crate) fn limit_to(pod: &mut Value, label: &str, value: &str) {
    pod["spec"]["nodeSelector"][label] = value.into();
}

/// Sets the scheduler of a pod, unless the user chose one: the API server writes
/// `default-scheduler` into pods before it calls webhooks.
pub fn schedule_by(pod: &mut Value, scheduler: &str) {
    let named = pod["spec"]["schedulerName"].as_str();
    if matches!(named, None | Some("" | "default-scheduler")) {
        pod["spec"]["schedulerName"] = scheduler.into();
    }
}

/// The pod as it was before [`without_limits`], [`with_claim`], `join_group` and
/// `join_compute_domain`. If no limits were
/// stored, the current ones are kept.
pub fn original(pod: &Value, resources: &GpuResources) -> Value {
    let is_kept = pod["metadata"]["annotations"].get(annotation::LIMITS).is_some();
    let mut pod = if is_kept { without_extended_resources(pod, resources) } else { pod.clone() };
    remove(&mut pod["spec"], "resourceClaims", CLAIM);
    remove(&mut pod["spec"], "schedulingGates", GATE_FABRIC);
    leave_compute_domain(&mut pod);
    leave_pod_group(&mut pod);
    unlabel(&mut pod["metadata"], label::FABRIC_GROUP);
    for container in containers(&mut pod) {
        if let Some(resources) = container.get_mut("resources") {
            remove(resources, "claims", CLAIM);
        }
    }
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.remove(annotation::PLAN);
        annotations.remove(annotation::REQUEST_HASH);
        if let Some(kept) = annotations.remove(annotation::LIMITS) {
            limits::restore(&mut pod, kept.as_str().unwrap_or_default(), resources);
        }
    }
    pod
}

/// The same, in which `dranet.io/containers` names the containers that have the claim, if nothing else in
/// the pod says which get devices: other webhooks may have added containers since.
pub fn as_decided(pod: &Value, resources: &GpuResources) -> Value {
    let mut original = original(pod, resources);
    let mut rewritten = pod.clone();
    let is_kept = pod["metadata"]["annotations"].get(annotation::LIMITS).is_some();
    let is_said = pod["metadata"]["annotations"].get(annotation::CONTAINERS).is_some()
        || !is_kept && limits::text(pod, resources).is_some();
    let users = containers(&mut rewritten).filter(|container| {
        let mut claims = container["resources"]["claims"].as_array().into_iter().flatten();
        claims.any(|claim| claim["name"] == CLAIM)
    });
    let users: Vec<&str> = users.filter_map(|container| container["name"].as_str()).collect();
    if !is_said && !users.is_empty() {
        original["metadata"]["annotations"][annotation::CONTAINERS] = users.join(",").into();
    }
    original
}

/// The names of the templates of the pod's claims.
pub fn templates(pod: &Pod) -> impl Iterator<Item = &str> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| claim.resource_claim_template_name.as_deref())
}

/// Removes the entries with this name from a list, and the list if it becomes empty.
fn remove(parent: &mut Value, list: &str, name: &str) {
    let Some(entries) = parent.get_mut(list).and_then(Value::as_array_mut) else { return };
    entries.retain(|entry| entry["name"] != name);
    if entries.is_empty() {
        parent.as_object_mut().map(|parent| parent.remove(list));
    }
}

/// Removes the `PodGroup` that [`join_group`] named.
fn leave_pod_group(pod: &mut Value) {
    let own = pod["metadata"]["labels"][label::FABRIC_GROUP].as_str().map(pod_group);
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    let named = spec.get(SCHEDULING_GROUP).and_then(|it| it["podGroupName"].as_str());
    if named.is_some() && named == own.as_deref() {
        spec.remove(SCHEDULING_GROUP);
    }
}

/// Removes a label, and `labels` if it becomes empty.
fn unlabel(metadata: &mut Value, label: &str) {
    let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) else { return };
    if labels.remove(label).is_some() && labels.is_empty() {
        metadata.as_object_mut().map(|metadata| metadata.remove("labels"));
    }
}

/// The containers and init containers.
pub(crate) fn containers(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let lists = pod["spec"].as_object_mut().into_iter().flat_map(Map::iter_mut);
    let lists = lists.filter(|(name, _)| CONTAINER_LISTS.contains(&name.as_str()));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten()
}

/// Adds the claim, or some of its requests, to a container.
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

/// Removes the limits and requests that the claim replaces from every container. Defaulting has
/// already copied limits to requests, and a `LimitRange` may add them again between two calls.
pub fn without_extended_resources(pod: &Value, resources: &GpuResources) -> Value {
    let mut pod = pod.clone();
    for amounts in containers(&mut pod).filter_map(|entry| entry.get_mut("resources")) {
        strip(amounts, "limits", resources);
        strip(amounts, "requests", resources);
    }
    pod
}

/// The template of our claim in the pod; `None` if the pod was not rewritten.
///
/// # Errors
/// Returns the claim with our name if it does not refer to one of our templates.
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

fn strip(container: &mut Value, list: &str, resources: &GpuResources) {
    let Some(amounts) = container.get_mut(list).and_then(Value::as_object_mut) else { return };
    for name in resources.names() {
        amounts.remove(name);
    }
    if amounts.is_empty() {
        container.as_object_mut().map(|container| container.remove(list));
    }
}

/// Appends to an array, which is created if absent.
fn push(array: &mut Value, entry: Value) {
    match array.as_array_mut() {
        Some(entries) => entries.push(entry),
        None => *array = Value::Array(vec![entry]),
    }
}

/// The smallest JSON patch from one pod to the other; parents are created before children.
pub fn patch(from: &Value, to: &Value) -> json_patch::Patch {
    json_patch::diff(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::names::annotation::Purpose;

    fn to(container: &str) -> Vec<Grant> {
        vec![Grant { container: container.to_owned(), requests: None }]
    }

    const TEMPLATE: &str = "dranet-0123456789abcdef";

    fn with_claim(pod: &Value, grants: &[Grant], template: &str, note: &str) -> Value {
        let pod = without_limits(pod, &GpuResources::default());
        super::with_claim(&pod, grants, template, note)
    }

    fn original(pod: &Value) -> Value {
        super::original(pod, &GpuResources::default())
    }

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
    fn the_claim_replaces_the_limits() {
        let after = with_claim(&pod(), &to("nccl"), TEMPLATE, "why");
        insta::assert_yaml_snapshot!(after);
    }

    #[test]
    fn the_patch_creates_the_same_pod() {
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
    fn the_original_of_a_rewritten_pod_is_restored() {
        let requests = Some(vec!["gpu0".to_owned(), "nic0".to_owned()]);
        let two = vec![Grant { container: "nccl".to_owned(), requests }];
        for grants in [to("nccl"), to("wait"), two] {
            let after = with_claim(&pod(), &grants, TEMPLATE, "why");
            let before = original(&after);
            assert_eq!(own_template(&before), Ok(None));
            let again = with_claim(&before, &grants, TEMPLATE, "why");
            assert_eq!(again, after);
            assert_eq!(original(&again), before);
        }
    }

    /// A copy that kept the gate might wait forever, and one that kept the label would be in a
    /// group that it has not requested.
    #[test]
    fn the_original_of_a_gated_pod_is_not_gated() {
        let plain = pod();
        let mut labelled = pod();
        labelled["metadata"]["labels"] = json!({ "app": "x" });
        labelled["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
        for pod in [plain, labelled] {
            let mut held = with_claim(&pod, &to("nccl"), TEMPLATE, "why");
            let rewritten = held.clone();
            for is_pod_group in [false, true] {
                held.clone_from(&rewritten);
                let label = "0123456789abcdef".to_owned();
                join_group(&mut held, &JoinedGroup { label, is_pod_group });
                assert_eq!(held["metadata"]["labels"][label::FABRIC_GROUP], "0123456789abcdef");
                let named = held["spec"][SCHEDULING_GROUP]["podGroupName"].as_str();
                assert_eq!(named, is_pod_group.then_some("dranet-0123456789abcdef"));
                let before = original(&held);
                assert_eq!(before, original(&rewritten));
                assert_eq!(before["metadata"].get("labels"), pod["metadata"].get("labels"));
                let gates = pod["spec"].get("schedulingGates");
                assert_eq!(before["spec"].get("schedulingGates"), gates);
            }
        }
    }

    #[test]
    fn a_pod_keeps_its_own_scheduler() {
        let cases = [
            (json!({}), "dranet-scheduler"),
            (json!({"schedulerName": ""}), "dranet-scheduler"),
            (json!({"schedulerName": "default-scheduler"}), "dranet-scheduler"),
            (json!({"schedulerName": "volcano"}), "volcano"),
        ];
        for (spec, expected) in cases {
            let mut pod = json!({ "spec": spec });
            schedule_by(&mut pod, "dranet-scheduler");
            assert_eq!(pod["spec"]["schedulerName"], expected);
        }
    }

    #[test]
    fn a_toleration_is_added_once_and_others_stay() {
        let ours = json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
        let every = json!({"key": "nvidia.com/gpu", "operator": "Exists"});
        let short = json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"});
        let valued = json!({"key": "nvidia.com/gpu", "operator": "Equal", "value": "a"});
        for (before, expected) in [
            (Value::Null, json!([ours])),
            (json!([ours]), json!([ours])),
            (json!([every]), json!([every])),
            (json!([short]), json!([short, ours])),
            (json!([valued]), json!([valued, ours])),
        ] {
            let mut pod = pod();
            pod["spec"]["tolerations"] = before;
            tolerate(&mut pod, &["nvidia.com/gpu"]);
            assert_eq!(pod["spec"]["tolerations"], expected);
        }
    }

    #[test]
    fn limits_that_were_not_kept_by_us_are_not_restored() {
        for kept in ["", "no JSON", "[]", r#"{"nccl":{"memory":"1Ti"}}"#, r#"{"nccl":1}"#] {
            let mut after = with_claim(&pod(), &to("nccl"), TEMPLATE, "why");
            after["metadata"]["annotations"][annotation::LIMITS] = kept.into();
            let before = original(&after);
            assert_eq!(
                before["spec"]["containers"][1]["resources"],
                json!({"limits": {"memory": "8Gi"}})
            );
        }
    }

    /// The hash is stored on pods, which later versions read.
    #[test]
    fn the_hash_is_of_all_annotations_that_ask() {
        let mut pod = json!({ "metadata": { "annotations": {} } });
        for annotation in annotation::ALL {
            let before = request_hash(&pod);
            pod["metadata"]["annotations"][annotation.key] = "x".into();
            let is_same = request_hash(&pod) == before;
            assert_eq!(is_same, annotation.purpose != Purpose::Asks, "{}", annotation.key);
        }
        assert_eq!(request_hash(&pod), "abb3bb11a8590090");
    }

    #[test]
    fn a_foreign_claim_with_our_name_is_an_error() {
        assert_eq!(own_template(&pod()), Ok(None));
        let mut foreign = pod();
        foreign["spec"]["resourceClaims"] = json!([{ "name": CLAIM, "resourceClaimName": "x" }]);
        assert!(own_template(&foreign).is_err());
    }
}
