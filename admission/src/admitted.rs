//! Which pods admission has admitted. It writes objects for these only.
//!
//! The webhook sees every pod that is created with an annotation `dranet.io/…`, and so does whatever
//! refuses such pods. On the pods that it decides on, it writes `dranet.io/plan`, which names the
//! template; it removes that annotation from others. The admission policy `plan.dranet.io` lets nobody
//! add or change it later.

use crate::plan::note::is_note_of;
use crate::rewrite::CLAIM;
use crate::template::is_ours;
use cluster_model::names::annotation;
use k8s_openapi::api::core::v1::Pod;

/// The template that admission has decided on for a pod; `None` if it has not admitted the pod. Other
/// claims of the pod are its author's own.
pub(crate) fn template(pod: &Pod) -> Option<&str> {
    let claims = pod.spec.as_ref()?.resource_claims.as_deref()?;
    let own = claims.iter().find(|claim| claim.name == CLAIM)?;
    let name = own.resource_claim_template_name.as_deref().filter(|name| is_ours(name))?;
    let note = pod.metadata.annotations.as_ref()?.get(annotation::PLAN)?;
    is_note_of(note, name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::admit;
    use crate::plan::Policy;
    use cluster_model::view::ClusterView;
    use serde_json::{Value, json};

    const NAME: &str = "dranet-0123456789abcdef";
    const OTHER: &str = "dranet-fedcba9876543210";

    fn of(claim: &str, template: &str, annotations: &Value) -> Option<String> {
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "containers": [],
                "resourceClaims": [{"name": claim, "resourceClaimTemplateName": template}],
            },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        super::template(&pod).map(str::to_owned)
    }

    #[test]
    fn only_the_template_that_the_plan_names_is_admitted() {
        let plan = json!({annotation::PLAN: format!("1 GPU and 1 NIC; template {NAME}")});
        assert_eq!(of(CLAIM, NAME, &plan).as_deref(), Some(NAME));
        for (claim, template, annotations) in [
            (CLAIM, NAME, json!({})),
            (CLAIM, NAME, json!({annotation::ALIGNED_NICS: "1"})),
            (CLAIM, NAME, json!({annotation::PLAN: NAME})),
            (CLAIM, OTHER, plan.clone()),
            (CLAIM, "mine", json!({annotation::PLAN: "; template mine"})),
            ("mine", NAME, plan),
        ] {
            assert_eq!(of(claim, template, &annotations), None, "{claim} {template} {annotations}");
        }
    }

    #[test]
    fn a_pod_that_admission_does_not_decide_on_loses_a_forged_plan() {
        let pod = json!({
            "metadata": {"annotations": {
                annotation::GPUS: "4", annotation::PLAN: format!("4 GPUs; template {NAME}"),
            }},
            "spec": {
                "containers": [],
                "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": NAME}],
            },
        });
        let after = admit(&pod, &ClusterView::default(), &Policy::default()).unwrap().pod;
        assert_eq!(after["metadata"]["annotations"], json!({annotation::GPUS: "4"}));
        assert_eq!(after["spec"], pod["spec"]);
    }
}
