//! What becomes of a missing template that a pod names.

use super::*;
use crate::cluster::{self, GB300};
use cluster_model::names::annotation;
use cluster_model::view::Index;
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::{Value, json};

/// A pod with four GPUs and four NICs, as admission has admitted it in a namespace, with its
/// template.
fn admitted(namespace: &str, view: &ClusterView) -> (Value, ResourceClaimTemplate) {
    let mut pod = cluster::pod("nvidia.com/gpu", 4, &[("aligned-nics", "4")]);
    pod["metadata"]["namespace"] = namespace.into();
    let verdict = admit(&pod, view, &Policy::default()).unwrap();
    let mut template = verdict.planned.unwrap().template;
    template.metadata.namespace = Some(namespace.to_owned());
    (verdict.pod, template)
}

/// A cluster in which another namespace has a template for all devices of a node. Returns its name.
fn made_elsewhere() -> (ClusterView, String) {
    let mut view = cluster::cluster(&[GB300]);
    let (_, template) = admitted("elsewhere", &view);
    let name = template.metadata.name.clone().unwrap();
    view.apply(template).unwrap();
    (view, name)
}

fn limit_gpus(view: &mut ClusterView) {
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "gpus", "namespace": "team"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }))
    .unwrap();
    view.apply(quota).unwrap();
}

/// What becomes of the missing template of a pod of the namespace `team`.
fn outcome(pod: &Value, name: &str, view: &ClusterView) -> String {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let key = ObjectKey { namespace: "team".to_owned(), name: name.to_owned() };
    match decide_again(&pod, &key, view, &Policy::default()) {
        Ok(Some(template)) => template.metadata.name.unwrap(),
        Ok(None) => "exists".to_owned(),
        Err(why) => Chain(&why).to_string(),
    }
}

fn ghost(template: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": "ghost", "namespace": "team", "annotations": annotations},
        "spec": {
            "containers": [{"name": "c", "resources": {"claims": [{"name": "dranet"}]}}],
            "resourceClaims": [{"name": "dranet", "resourceClaimTemplateName": template}],
        },
    })
}

#[test]
fn a_template_of_another_namespace_is_not_copied_for_a_pod_that_nobody_admitted() {
    let (mut view, name) = made_elsewhere();
    for is_limited in [false, true] {
        if is_limited {
            limit_gpus(&mut view);
        }
        for annotations in [
            json!({}),
            json!({annotation::ALIGNED_NICS: "4", annotation::GPUS: "4"}),
            json!({annotation::PLAN: "1 GPU; template dranet-0123456789abcdef"}),
        ] {
            let outcome = outcome(&ghost(&name, &annotations), &name, &view);
            assert!(outcome.starts_with("it has not admitted this pod"), "{outcome}");
        }
    }
}

/// A namespace that the webhook does not see, or a webhook that is down with the policy `Ignore`.
#[test]
fn a_forged_plan_passes_the_rules_of_the_namespace_or_gets_nothing() {
    let (mut view, name) = made_elsewhere();
    let plan = format!("4 GPUs and 4 NICs; template {name}");
    let less = ghost(
        &name,
        &json!({
            annotation::ALIGNED_NICS: "1", annotation::GPUS: "1", annotation::PLAN: plan,
        }),
    );
    let nothing = ghost(&name, &json!({annotation::PLAN: plan}));
    for forged in [less, nothing] {
        let outcome = outcome(&forged, &name, &view);
        assert!(outcome.contains("now lead to another one"), "{outcome}");
    }
    let same = json!({
        annotation::ALIGNED_NICS: "4", annotation::GPUS: "4", annotation::PLAN: plan,
    });
    let same = ghost(&name, &same);
    assert_eq!(outcome(&same, &name, &view), name);
    limit_gpus(&mut view);
    let outcome = outcome(&same, &name, &view);
    assert!(outcome.contains("denied now: ") && outcome.contains("quota `gpus`"), "{outcome}");
}

#[test]
fn the_template_of_an_admitted_pod_is_recreated_while_its_namespace_allows_it() {
    let mut view = cluster::cluster(&[GB300]);
    let (pod, template) = admitted("team", &view);
    let name = template.metadata.name.clone().unwrap();
    assert_eq!(outcome(&pod, &name, &view), name);
    let mut edited = pod.clone();
    edited["metadata"]["annotations"][annotation::ALIGNED_NICS] = "2".into();
    assert!(outcome(&edited, &name, &view).contains("another one"));
    // The other claims of the pod are its author's own.
    let other = "dranet-0123456789abcdef";
    assert!(outcome(&pod, other, &view).starts_with("it has not admitted"));
    let mut denied = view.clone();
    limit_gpus(&mut denied);
    assert!(outcome(&pod, &name, &denied).contains("quota `gpus`"));
    view.apply(template).unwrap();
    assert_eq!(outcome(&pod, &name, &view), "exists");
}
