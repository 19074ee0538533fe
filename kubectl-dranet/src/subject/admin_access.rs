//! Claims with `adminAccess`, which the API server accepts only in namespaces that are labelled for it
//! (`pkg/registry/resource/resourceclaim`).

use super::Subject;
use serde_json::Value;

/// The label of namespaces whose claims may ask for `adminAccess` (`resource.k8s.io/v1`).
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Marks pods whose claims the API server refuses. `find` finds a claim or template of the same file by
/// kind, name and namespace.
pub(super) fn refuse<'o>(
    subjects: &mut [Subject],
    objects: &[Value],
    find: impl Fn(&str, &str, &str) -> Option<&'o Value>,
) {
    for Subject { pod, refused, .. } in subjects {
        if refused.is_some() {
            continue;
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        let entries = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
        *refused = entries.into_iter().find_map(|entry| {
            let (kind, name) = match entry["resourceClaimTemplateName"].as_str() {
                Some(name) => ("ResourceClaimTemplate", name),
                None => ("ResourceClaim", entry["resourceClaimName"].as_str()?),
            };
            let object = find(kind, name, namespace)?;
            let why = problem(object, namespace, objects)?;
            Some(format!("cannot be scheduled: its {kind} `{name}` {why}"))
        });
    }
}

/// Why the API server refuses a claim or template in this namespace, if it asks for `adminAccess`.
/// `objects` has the namespaces that are known.
pub(crate) fn problem(object: &Value, namespace: &str, objects: &[Value]) -> Option<String> {
    if !asks(object) {
        return None;
    }
    let known = objects
        .iter()
        .find(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == namespace);
    let state = match known.map(|known| known["metadata"]["labels"][LABEL] == "true") {
        Some(true) => return None,
        Some(false) => "does not have it",
        None => "is not known to have it",
    };
    Some(format!(
        "asks for adminAccess, which the API server accepts only in a namespace with the label {LABEL}: \
         \"true\", and namespace `{namespace}` {state}; an administrator can set it: `kubectl label \
         namespace {namespace} {LABEL}=true`"
    ))
}

/// Whether a claim or template asks for `adminAccess`.
pub(super) fn asks(object: &Value) -> bool {
    let spec = match object["kind"].as_str() {
        Some("ResourceClaimTemplate") => &object["spec"]["spec"],
        _ => &object["spec"],
    };
    let mut requests = spec["devices"]["requests"].as_array().into_iter().flatten();
    requests.any(|request| request["exactly"]["adminAccess"] == true)
}
