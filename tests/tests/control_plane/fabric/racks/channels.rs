//! The part of NVIDIA's driver for `ComputeDomain`s: their templates, which end with them.

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Resource, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tests::{Check, Scope, eventually};

use super::super::{
    compute_domains::{CLASS, domains},
    site::SOON,
};

/// Creates the missing template of each `ComputeDomain`, owned by it.
pub(super) async fn create_templates(scope: &Scope) -> anyhow::Result<()> {
    let templates = scope.api::<ResourceClaimTemplate>();
    for domain in domains(scope).list(&ListParams::default()).await? {
        let name = domain.data["spec"]["channel"]["resourceClaimTemplate"]["name"].as_str();
        let Some(name) = name else { continue };
        if domain.metadata.deletion_timestamp.is_some() || templates.get_opt(name).await?.is_some()
        {
            continue;
        }
        let template: ResourceClaimTemplate = serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
                "name": domain.name_any(), "uid": domain.metadata.uid,
            }]},
            "spec": {"spec": {"devices": {"requests": [
                {"name": "channel", "exactly": {"deviceClassName": CLASS}},
            ]}}},
        }))?;
        templates.create(&PostParams::default(), &template).await?;
    }
    Ok(())
}

/// Waits until no `ComputeDomain`, no template of one, no claim and no pod is left.
pub(super) async fn nothing_left(scope: &Scope) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let all = ListParams::default();
        let mut left: Vec<_> =
            domains(scope).list(&all).await?.iter().map(|it| named("ComputeDomain", it)).collect();
        left.extend(scope.api::<Pod>().list(&all).await?.iter().map(|it| named("Pod", it)));
        let claims = scope.api::<ResourceClaim>().list(&all).await?;
        left.extend(claims.iter().map(|it| named("ResourceClaim", it)));
        let templates = scope.api::<ResourceClaimTemplate>().list(&all).await?;
        let of_domains = templates.iter().filter(|it| it.name_any().contains("compute-domain"));
        left.extend(of_domains.map(|it| named("ResourceClaimTemplate", it)));
        Ok(Check::that(left.is_empty(), || format!("left: {}", left.join(", "))))
    })
    .await
}

fn named(kind: &str, object: &impl Resource) -> String {
    format!("{kind} {}", object.meta().name.as_deref().unwrap_or_default())
}
