//! Pods that Kueue holds until it has quota for them: what their Workload says.

use serde_json::Value;

/// The gates with which Kueue holds pods: until it has quota, and until it knows their place.
const GATES: [&str; 2] = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"];

/// The label with the group of a pod, whose Workload has the same name.
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// The annotation with the Workload of a pod.
const WORKLOAD: &str = "kueue.x-k8s.io/workload";

/// The conditions of a Workload that must be true before its pods start, in order.
const STEPS: [&str; 2] = ["QuotaReserved", "Admitted"];

/// Whether Kueue holds a pod.
pub(crate) fn holds(pod: &Value) -> bool {
    let mut gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.any(|gate| gate["name"].as_str().is_some_and(is_gate))
}

/// Whether a gate is Kueue's.
pub(crate) fn is_gate(name: &str) -> bool {
    GATES.contains(&name)
}

/// Why Kueue holds a pod, in the words of its Workload; `None` if that is not among these.
pub(crate) fn why(pod: &Value, workloads: &[Value]) -> Option<String> {
    let mut workloads = workloads.iter();
    let workload = workloads.find(|workload| is_of(workload, pod))?;
    let conditions = workload["status"]["conditions"].as_array();
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let said = STEPS.iter().find_map(|step| {
        let condition = conditions.into_iter().flatten().find(|it| it["type"] == **step);
        condition.is_none_or(|it| it["status"] != "True").then_some(condition)
    })?;
    let said = said.and_then(|condition| condition["message"].as_str());
    Some(match said {
        Some(said) => format!("Kueue says of its Workload {name}: {}", said.trim_end_matches('.')),
        None => format!("Kueue has not looked at its Workload {name} yet"),
    })
}

/// Whether a Workload is that of a pod.
fn is_of(workload: &Value, pod: &Value) -> bool {
    let (metadata, own) = (&workload["metadata"], &pod["metadata"]);
    let names = [&own["labels"][GROUP], &own["annotations"][WORKLOAD]];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let is_named = names.iter().any(|name| name.is_string() && **name == metadata["name"]);
    let is_owned = owners.any(|owner| owner["uid"].is_string() && owner["uid"] == own["uid"]);
    metadata["namespace"] == own["namespace"] && (is_named || is_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a Workload says, and what is told of its pod.
    #[test]
    fn the_workload_of_a_pod_says_why_it_waits() {
        let pod = |metadata: Value| {
            let mut pod = json!({
                "metadata": { "name": "a", "namespace": "team", "uid": "1" },
                "spec": { "schedulingGates": [{ "name": GATES[0] }] },
            });
            for (key, value) in metadata.as_object().unwrap() {
                pod["metadata"][key] = value.clone();
            }
            pod
        };
        let workload = |owner: &str, conditions: Value| {
            json!({
                "metadata": {
                    "name": "w", "namespace": "team", "ownerReferences": [{ "uid": owner }],
                },
                "status": { "conditions": conditions },
            })
        };
        let condition = |step: &str, status: &str| json!({ "type": step, "status": status, "message": format!("about {step}.") });
        let none = json!({});
        let of_group = json!({ "labels": { GROUP: "w" } });
        let elsewhere = json!({ "labels": { GROUP: "w" }, "namespace": "other" });
        let no_quota = json!([condition("QuotaReserved", "False")]);
        let checks = json!([condition("QuotaReserved", "True"), condition("Admitted", "False")]);
        let admitted = json!([condition("QuotaReserved", "True"), condition("Admitted", "True")]);
        for (metadata, owner, conditions, expected) in [
            (&none, "1", &no_quota, Some("Kueue says of its Workload w: about QuotaReserved")),
            (&none, "2", &no_quota, None),
            (&of_group, "2", &no_quota, Some("Kueue says of its Workload w: about QuotaReserved")),
            (&elsewhere, "1", &no_quota, None),
            (&none, "1", &checks, Some("Kueue says of its Workload w: about Admitted")),
            (&none, "1", &json!([]), Some("Kueue has not looked at its Workload w yet")),
            (&none, "1", &admitted, None),
        ] {
            let pod = pod(metadata.clone());
            assert!(holds(&pod));
            let said = why(&pod, &[workload(owner, conditions.clone())]);
            assert_eq!(said.as_deref(), expected, "{metadata} {conditions}");
        }
    }
}
