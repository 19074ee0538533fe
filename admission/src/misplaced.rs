//! Annotations of ours that have no effect where they are: beside the pod template of a workload,
//! misspelt in it, or changed on a pod that exists. No pod is denied for them, and events about the pods
//! of a controller would reach nobody, so who writes them is warned.

use crate::intent::warnings;
use cluster_model::names::annotation;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Annotations that fabric-controller reads for as long as the pod waits.
const READ_LATER: [&str; 4] = [
    annotation::DOMAIN_SIZE,
    annotation::FABRIC_LEVEL,
    annotation::FABRIC_SIZE,
    annotation::FABRIC_WAIT,
];

/// Warnings about a workload and its pod templates. The same warning about several templates is given
/// once.
pub fn of_workload(workload: &Value) -> Vec<String> {
    let mut templates = Vec::new();
    pod_templates(workload, "", &mut templates);
    let Some((place, _)) = templates.first() else { return Vec::new() };
    let who = workload["kind"].as_str().unwrap_or("object");
    let own = beside_template(who, &workload["metadata"]["annotations"], place);
    let mut found: Vec<String> = own.into_iter().collect();
    for (_, template) in &templates {
        let Ok(pod) = serde_json::from_value::<Pod>((*template).clone()) else { continue };
        for warning in warnings(&pod) {
            if !found.contains(&warning) {
                found.push(warning);
            }
        }
    }
    found
}

/// What is wrong if an object that creates pods has our annotations itself; `place` is the path to its
/// first pod template.
pub fn beside_template(who: &str, annotations: &Value, place: &str) -> Option<String> {
    let key = annotations.as_object()?.keys().find(|key| key.starts_with(annotation::DOMAIN))?;
    Some(format!(
        "{who} has the annotation {key} on itself, where it has no effect; move it to \
         {place}metadata.annotations"
    ))
}

/// Warnings about an update of a pod that changes what it asks for.
pub fn of_update(before: &Value, after: &Value) -> Vec<String> {
    let none = Map::new();
    let [before, after] =
        [before, after].map(|pod| pod["metadata"]["annotations"].as_object().unwrap_or(&none));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed
        .filter(|key| key.starts_with(annotation::DOMAIN) && !is_read_later(key))
        .map(|key| {
            format!(
                "annotation {key} has no effect on a pod that exists: it is read when a pod is created; \
                 change the pod template of its workload, or create the pod again"
            )
        })
        .collect()
}

/// Whether a change of an annotation has an effect, or is made by a program.
fn is_read_later(key: &str) -> bool {
    let is_for_asking = annotation::asking().any(|asking| asking == key);
    READ_LATER.contains(&key) || (!is_for_asking && annotation::on_pods().any(|known| known == key))
}

/// Finds every value with `spec.containers`, whatever the kind around it, with the path to it.
fn pod_templates<'v>(value: &'v Value, path: &str, found: &mut Vec<(String, &'v Value)>) {
    if !path.is_empty() && value["spec"]["containers"].is_array() {
        found.push((path.to_owned(), value));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                pod_templates(below, &format!("{path}{key}."), found);
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                pod_templates(below, &format!("{path}{index}."), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(annotations: &Value) -> Value {
        json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [] } })
    }

    #[test]
    fn annotations_without_effect_are_found_in_workloads() {
        let typo = json!({ "dranet.io/aligned-nic": "1" });
        let right = json!({ "dranet.io/aligned-nics": "1" });
        let typo_text = "annotation dranet.io/aligned-nic is not known to this version of dranet and has no \
                         effect; did you mean dranet.io/aligned-nics?";
        for (workload, expected) in [
            (json!({ "kind": "Job", "spec": { "template": template(&typo) } }), vec![typo_text]),
            (
                json!({ "kind": "CronJob", "spec": { "jobTemplate": { "spec": {
                    "template": template(&typo) } } } }),
                vec![typo_text],
            ),
            (
                json!({ "kind": "JobSet", "spec": { "replicatedJobs": [
                    { "template": { "spec": { "template": template(&typo) } } },
                    { "template": { "spec": { "template": template(&typo) } } } ] } }),
                vec![typo_text],
            ),
            (
                json!({ "kind": "Deployment", "metadata": { "annotations": right },
                    "spec": { "template": template(&json!({})) } }),
                vec![
                    "Deployment has the annotation dranet.io/aligned-nics on itself, where it has no \
                     effect; move it to spec.template.metadata.annotations",
                ],
            ),
            (json!({ "kind": "Job", "spec": { "template": template(&right) } }), vec![]),
            (json!({ "kind": "ConfigMap", "metadata": { "annotations": right } }), vec![]),
        ] {
            assert_eq!(of_workload(&workload), expected, "{workload}");
        }
    }

    #[test]
    fn changes_on_pods_that_exist_are_found() {
        let pod = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
        let before = pod(json!({ "dranet.io/aligned-nics": "1", "dranet.io/plan": "a" }));
        for (after, number) in [
            (before.clone(), 0),
            (pod(json!({ "dranet.io/aligned-nics": "2", "dranet.io/plan": "a" })), 1),
            (pod(json!({ "dranet.io/plan": "a" })), 1),
            (pod(json!({ "dranet.io/aligned-nics": "1", "dranet.io/alinged-nics": "1" })), 1),
            // What programs write, what they read later, and others' annotations.
            (pod(json!({ "dranet.io/aligned-nics": "1", "dranet.io/fabric-chosen": "a" })), 0),
            (pod(json!({ "dranet.io/aligned-nics": "1", "dranet.io/fabric-size": "3" })), 0),
            (pod(json!({ "dranet.io/aligned-nics": "1", "dranet.io/movable": "true" })), 0),
            (pod(json!({ "dranet.io/aligned-nics": "1", "a": "b" })), 0),
        ] {
            let warnings = of_update(&before, &after);
            assert_eq!(warnings.len(), number, "{after}: {warnings:?}");
        }
    }
}
