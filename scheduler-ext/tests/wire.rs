//! Bodies as kube-scheduler writes them, and bodies that it does not write.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use k8s_openapi::api::core::v1::Pod;
use scheduler_ext::wire::{ExtenderArgs, HostPriority, WireError};
use serde_json::{Value, json};

/// The pod and the names of the nodes.
fn parse(body: &Value) -> Result<(Pod, Vec<String>), String> {
    let body = body.to_string();
    let read = |args: ExtenderArgs<'_>| -> Result<_, WireError> {
        let names = args.node_names()?;
        Ok((args.pod, names))
    };
    ExtenderArgs::parse(body.as_bytes()).and_then(read).map_err(|error| error.to_string())
}

/// The keys as kube-scheduler writes them: Go field names.
#[test]
fn arguments_as_the_scheduler_writes_them() {
    let (pod, names) = parse(&json!({
        "Pod": {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": null},
            "spec": {
                "containers": [{"name": "c", "resources": {}, "later": 1}],
                "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}],
            },
            "status": {"phase": "Pending", "resourceClaimStatuses": [
                {"name": "a", "resourceClaimName": "p-a-x"},
            ]},
        },
        "Nodes": null,
        "NodeNames": ["a", "b"],
        "Later": {"more": []},
    }))
    .unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("p"));
    assert_eq!(names, ["a", "b"]);
    let claims = pod.spec.unwrap().resource_claims.unwrap();
    assert_eq!(claims[0].resource_claim_template_name.as_deref(), Some("t"));
    let statuses = pod.status.unwrap().resource_claim_statuses.unwrap();
    assert_eq!(statuses[0].resource_claim_name.as_deref(), Some("p-a-x"));
}

#[test]
fn empty_and_null_fields_are_accepted() {
    for pod in [
        json!({}),
        json!({"metadata": null, "spec": null, "status": null}),
        json!({"metadata": {}, "spec": {"containers": null, "resourceClaims": null}, "status": {}}),
    ] {
        let (pod, names) = parse(&json!({"Pod": pod, "NodeNames": []})).unwrap();
        assert!(names.is_empty());
        assert_eq!(pod.spec.and_then(|spec| spec.resource_claims), None);
    }
    let (_, names) = parse(&json!({"Pod": {}, "Nodes": null, "NodeNames": null})).unwrap();
    assert!(names.is_empty());
}

#[test]
fn errors_say_what_is_wrong() {
    let cases = [
        (json!({"Pod": {}, "Nodes": {"items": []}, "NodeNames": null}), "nodeCacheCapable: true"),
        (json!({"NodeNames": ["a"]}), "no `Pod`"),
        (json!({"Pod": null, "NodeNames": ["a"]}), "no `Pod`"),
        (json!({"Pod": {}, "NodeNames": "a"}), "not a valid ExtenderArgs"),
        (json!({"Pod": {}, "NodeNames": ["a", 1]}), "not a valid ExtenderArgs"),
        (json!([]), "not a valid ExtenderArgs"),
    ];
    for (body, expected) in cases {
        let error = parse(&body).unwrap_err();
        assert!(error.contains(expected), "{body}: {error}");
    }
    for body in ["", "{", "\u{0}", "{\"Pod\":"] {
        assert!(ExtenderArgs::parse(body.as_bytes()).is_err(), "{body:?}");
    }
}

#[test]
fn the_answer_is_a_bare_array_of_hosts() {
    let answer = [HostPriority { host: "a", score: 10 }];
    assert_eq!(serde_json::to_string(&answer).unwrap(), r#"[{"Host":"a","Score":10}]"#);
}
