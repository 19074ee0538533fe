//! A manifest that is applied once more. The API server compares it with the pod that admission has
//! rewritten, so the update takes the rewrite back: it sets the GPU limits again, and lists that it
//! names lose what admission added. Kubernetes forbids such changes of a pod, and tools that apply a
//! manifest again and again would fail for ever.

use crate::intent::GpuResources;
use crate::rewrite::{
    CLAIM, containers, original, own_template, schedule_by, tolerate, was_edited,
};
use cluster_model::names::annotation;
use serde_json::{Value, json};

/// Warning on a pod whose annotations are changed after its claim was made.
const CLAIM_STAYS: &str = "the claim of a pod never changes: delete the pod and create it again, so \
                           that it gets what its annotations ask for now";

/// The updated pod with the rewrite of the stored pod put back, as far as the update takes back
/// exactly that. All other changes stay, for the API server to judge.
pub fn put_back(updated: &Value, stored: &Value, resources: &GpuResources) -> Value {
    let mut pod = updated.clone();
    if !matches!(own_template(stored), Ok(Some(_))) {
        return pod;
    }
    let (mut before, mut after) = (original(stored, resources), stored.clone());
    let befores: Vec<&mut Value> = containers(&mut before).collect();
    let afters: Vec<&mut Value> = containers(&mut after).collect();
    for container in containers(&mut pod) {
        let Some(before) = named(&befores, &container["name"]) else { continue };
        let Some(after) = named(&afters, &container["name"]) else { continue };
        if rest(container, resources) == rest(before, resources)
            && asks_for_no_other(container, before, resources)
        {
            match after.get("resources") {
                Some(kept) => container["resources"] = kept.clone(),
                None => drop(container.as_object_mut().map(|it| it.remove("resources"))),
            }
        }
    }
    if let Some(scheduler) = stored["spec"]["schedulerName"].as_str() {
        schedule_by(&mut pod, scheduler);
    }
    let tolerated = stored["spec"]["tolerations"].as_array().into_iter().flatten();
    let keys = tolerated.filter_map(|toleration| toleration["key"].as_str());
    let ours: Vec<&str> = keys.filter(|key| resources.get(key).is_some()).collect();
    tolerate(&mut pod, &ours);
    // The manifest may be a copy of another pod, and the policy `plan.dranet.io` lets nobody change it.
    if let Some(plan) = stored["metadata"]["annotations"].get(annotation::PLAN) {
        pod["metadata"]["annotations"][annotation::PLAN] = plan.clone();
    }
    pod
}

/// The container of this name.
fn named<'c>(containers: &'c [&mut Value], name: &Value) -> Option<&'c Value> {
    containers.iter().find(|container| container["name"] == *name).map(|container| &**container)
}

/// The warning for an update that changes what the pod asks for.
pub fn warning(pod: &Value) -> Option<String> {
    let was_planned = pod["metadata"]["annotations"].get(annotation::PLAN).is_some();
    (was_planned && was_edited(pod)).then(|| CLAIM_STAYS.to_owned())
}

/// The resources of a container without those that admission replaces or adds.
fn rest(container: &Value, resources: &GpuResources) -> Value {
    let mut rest = container.get("resources").cloned().unwrap_or_default();
    for list in ["limits", "requests"] {
        if let Some(amounts) = rest.get_mut(list).and_then(Value::as_object_mut) {
            amounts.retain(|name, _| resources.get(name).is_none());
        }
    }
    if let Some(claims) = rest.get_mut("claims").and_then(Value::as_array_mut) {
        claims.retain(|claim| claim["name"] != CLAIM);
    }
    if let Some(lists) = rest.as_object_mut() {
        lists.retain(|_, list| *list != json!({}) && *list != json!([]));
    }
    if rest == json!({}) { Value::Null } else { rest }
}

/// Returns true if each GPU limit and request of the updated container is that of the manifest
/// before. Requests are limits by default.
fn asks_for_no_other(updated: &Value, before: &Value, resources: &GpuResources) -> bool {
    resources.names().all(|name| {
        let limit = &before["resources"]["limits"][name];
        let asked = ["limits", "requests"].map(|list| &updated["resources"][list][name]);
        asked.into_iter().all(|amount| amount.is_null() || amount == limit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Grant;
    use crate::rewrite::{schedule_by, with_claim, without_limits};

    fn manifest() -> Value {
        json!({
            "metadata": { "name": "a", "annotations": { "dranet.io/aligned-nics": "1" } },
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [
                    { "name": "side", "image": "side:1", "resources": {} },
                    { "name": "nccl", "image": "nccl:1", "resources": {
                        "limits": { "nvidia.com/gpu": "1", "memory": "8Gi" },
                        "requests": { "nvidia.com/gpu": "1", "memory": "8Gi" },
                        "claims": [{ "name": "mine" }],
                    } },
                ],
                "resourceClaims": [{ "name": "mine", "resourceClaimName": "x" }],
                "tolerations": [{ "key": "team", "operator": "Exists" }],
            },
        })
    }

    fn stored() -> Value {
        let resources = GpuResources::default();
        let grants = [Grant { container: "nccl".to_owned(), requests: None }];
        let pod = without_limits(&manifest(), &resources);
        let mut pod = with_claim(&pod, &grants, "dranet-0123456789abcdef", "why");
        schedule_by(&mut pod, "dranet-scheduler");
        tolerate(&mut pod, &["nvidia.com/gpu"]);
        pod
    }

    /// What a merge of the manifest into the stored pod gives: lists without merge keys are those of
    /// the manifest.
    fn applied(manifest: &Value) -> Value {
        let mut pod = stored();
        for (at, container) in containers(&mut manifest.clone()).enumerate() {
            pod["spec"]["containers"][at] = container.clone();
        }
        for field in ["schedulerName", "tolerations"] {
            pod["spec"][field] = manifest["spec"][field].clone();
        }
        pod
    }

    #[test]
    fn the_same_manifest_changes_nothing() {
        let stored = stored();
        let put_back = put_back(&applied(&manifest()), &stored, &GpuResources::default());
        assert_eq!(put_back, stored);
        assert_eq!(warning(&put_back), None);
    }

    #[test]
    fn another_amount_is_left_for_the_api_server_to_refuse() {
        let mut more = manifest();
        more["spec"]["containers"][1]["resources"]["limits"]["nvidia.com/gpu"] = "2".into();
        let mut less_memory = manifest();
        less_memory["spec"]["containers"][1]["resources"]["limits"]["memory"] = "4Gi".into();
        for manifest in [more, less_memory] {
            let pod = put_back(&applied(&manifest), &stored(), &GpuResources::default());
            let asked = &manifest["spec"]["containers"][1]["resources"];
            assert_eq!(&pod["spec"]["containers"][1]["resources"], asked);
        }
    }

    #[test]
    fn other_changes_stay() {
        let mut newer = manifest();
        newer["spec"]["containers"][1]["image"] = "nccl:2".into();
        let pod = put_back(&applied(&newer), &stored(), &GpuResources::default());
        assert_eq!(pod["spec"]["containers"][1]["image"], "nccl:2");
        let kept = &stored()["spec"]["containers"][1]["resources"];
        assert_eq!(&pod["spec"]["containers"][1]["resources"], kept);
    }

    #[test]
    fn the_plan_stays() {
        let (mut copy, mut without) = (stored(), stored());
        copy["metadata"]["annotations"][annotation::PLAN] = "of another pod".into();
        without["metadata"]["annotations"].as_object_mut().unwrap().remove(annotation::PLAN);
        for manifest in [copy, without] {
            assert_eq!(put_back(&manifest, &stored(), &GpuResources::default()), stored());
        }
    }

    #[test]
    fn changed_annotations_are_answered_with_what_to_do() {
        let mut pod = stored();
        pod["metadata"]["annotations"]["dranet.io/aligned-nics"] = "2".into();
        let put_back = put_back(&pod, &stored(), &GpuResources::default());
        assert_eq!(warning(&put_back).as_deref(), Some(CLAIM_STAYS));
    }

    #[test]
    fn a_pod_that_was_not_rewritten_stays_as_it_is() {
        let pod = manifest();
        assert_eq!(put_back(&pod, &pod, &GpuResources::default()), pod);
    }
}
