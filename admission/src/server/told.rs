//! One line of the log for each pod that gets a claim or is denied.

use crate::denial::cut;
use kube::core::DynamicObject;
use kube::core::admission::AdmissionRequest;

type Request = AdmissionRequest<DynamicObject>;

/// The longest sentence in a line, in characters. The user gets the whole one.
const WHY_MAX: usize = 300;

/// A pod was denied.
pub(super) fn denied(request: &Request, reason: &str, why: &str) {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    // The log quotes and escapes strings, so that a line feed that users have written forges no line.
    tracing::info!(namespace, pod = pod(request), reason, why = &*cut(why, WHY_MAX), "Denied");
}

/// A pod got a claim from this template.
pub(super) fn patched(request: &Request, template: &str) {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    tracing::info!(namespace, pod = pod(request), template, "Patched");
}

/// The pod's controller as `KIND/NAME`, or its own name, which most pods with a controller do not have
/// yet.
fn pod(request: &Request) -> String {
    let Some(object) = &request.object else { return String::new() };
    let metadata = &object.metadata;
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let named = metadata.name.as_ref().or(metadata.generate_name.as_ref());
    let told = match controller {
        Some(owner) => format!("{}/{}", owner.kind, owner.name),
        None => format!("Pod/{}", named.map_or("", String::as_str)),
    };
    cut(&told, WHY_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::admission::AdmissionReview;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_is_named_by_its_controller() {
        let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": true}]);
        for (metadata, told) in [
            (json!({"generateName": "train-", "ownerReferences": job}), "Job/train"),
            (json!({"generateName": "web-"}), "Pod/web-"),
            (json!({"name": "a"}), "Pod/a"),
        ] {
            assert_eq!(pod(&request(&metadata)), told);
        }
    }

    fn request(metadata: &Value) -> Request {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "team",
                "operation": "CREATE",
                "userInfo": {},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
            },
        });
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(review).unwrap();
        review.try_into().unwrap()
    }
}
