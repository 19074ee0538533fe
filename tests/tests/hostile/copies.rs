//! Objects that admission would copy on a tenant's word: templates that another namespace has.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Event, Pod},
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api, Error,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, binaries, eventually, installation::Installation, suite::Test,
    with_scope,
};

use super::pods::{create, pod};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "plan.dranet.io";
/// NVIDIA's definition of a ComputeDomain, and its class of channels.
const DOMAINS: &str = "fixtures/nvidia-dra/computedomains.yaml";
const CHANNELS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: compute-domain-default-channel.nvidia.com}
spec: {selectors: [{cel: {expression: \"device.driver == 'compute-domain.nvidia.com'\"}}]}
";
/// The number of jobs, and the most ComputeDomains.
const JOBS: usize = 8;
const MOST: usize = 3;
/// A template that does not exist.
const TEMPLATE: &str = "dranet-0123456789abcdef";
/// A quota of one GPU, which counts limits and no claims.
const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus}
spec: {hard: {requests.nvidia.com/gpu: '1'}}
";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        a_template_of_another_namespace_is_not_copied,
        a_namespace_gets_few_compute_domains,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn a_template_of_another_namespace_is_not_copied(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    let client = plane.client();
    with_scope(client.clone(), async |elsewhere| {
        let mut installation = Installation::install(&plane, elsewhere).await?;
        installation.gb300("one").await?;
        installation.start_replicas(2, &[]).await?;
        let template = made_elsewhere(elsewhere).await?;
        with_scope(client, async |scope| {
            scope.apply_yaml(QUOTA).await?;
            let ghosts = [
                ("ghost", json!({})),
                ("forged", json!({"dranet.io/plan": format!("4 GPUs; template {template}")})),
            ];
            for (name, annotations) in &ghosts {
                let ghost = serde_json::from_value(ghost(name, &template, annotations))?;
                scope.api::<Pod>().create(&PostParams::default(), &ghost).await?;
            }
            // The leader has looked at the pods when one has its event.
            let told = told(scope).await?;
            anyhow::ensure!(told.contains(&template), "{told}");
            for (name, _) in &ghosts {
                plan_is_refused(scope, name, &template).await?;
            }
            let made = scope.api::<ResourceClaimTemplate>();
            let made = made.list_metadata(&ListParams::default()).await?.items;
            anyhow::ensure!(made.is_empty(), "{made:?}");
            Ok(format!("no template is created, and the event says: {told}"))
        })
        .await
    })
    .await
}

/// Each of the pods is of a job of its own. Some were never admitted.
async fn a_namespace_gets_few_compute_domains(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        scope.apply_file(&binaries::in_tests(DOMAINS)).await?;
        scope.apply_yaml(CHANNELS).await?;
        installation.gb300("one").await?;
        let most = format!("--max-compute-domains={MOST}");
        installation.start_replicas(1, &[&most]).await?;
        for index in 0..JOBS {
            let mut ghost = ghost(&format!("ghost-{index}"), TEMPLATE, &json!({}));
            ghost["spec"]["resourceClaims"] = json!([
                {"name": "dranet", "resourceClaimTemplateName": TEMPLATE},
                {"name": "dranet-compute-domain",
                    "resourceClaimTemplateName": format!("dranet-compute-domain-{index:016x}-channel")},
            ]);
            ghost["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-name": "ghost"});
            create(scope, &ghost).await?;
            let mut job = pod(&format!("job-{index}"), &json!({"dranet.io/aligned-nics": "1", "dranet.io/compute-domain": "auto"}));
            job["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-name": format!("job-{index}")});
            create(scope, &job).await?;
        }
        let told = eventually(SOON, async || {
            let all = scope.api::<Event>().list(&ListParams::default()).await?.items;
            let mut told = all.into_iter().filter(|event| event.reason.as_deref() == Some("ComputeDomainNotCreated"));
            let told = told.find_map(|event| event.message.filter(|it| it.contains("--max-compute-domains")));
            Ok(told.map_or_else(|| Check::NotYet("no event".to_owned()), Check::Done))
        })
        .await?;
        let kind = GroupVersionKind::gvk("resource.nvidia.com", "v1beta1", "ComputeDomain");
        let made: Api<DynamicObject> =
            Api::namespaced_with(scope.client(), scope.namespace(), &ApiResource::from_gvk(&kind));
        let made = made.list(&ListParams::default()).await?.items.len();
        anyhow::ensure!(made == MOST, "{made} ComputeDomains");
        Ok(format!("{made} are created for {JOBS} jobs and {JOBS} others, and an event says: {told}"))
    })
    .await
}

/// A pod with all GPUs and NICs of a node. Returns the name of its template, which is what the tenant
/// needs to know.
async fn made_elsewhere(scope: &Scope) -> anyhow::Result<String> {
    let mut large = pod("large", &json!({"dranet.io/aligned-nics": "4"}));
    large["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4".into();
    let large = serde_json::from_value(large)?;
    scope.api::<Pod>().create(&PostParams::default(), &large).await?;
    let large = scope.bound("large", SOON).await?;
    let claims = large.spec.and_then(|spec| spec.resource_claims).unwrap_or_default();
    let mut templates = claims.into_iter().filter_map(|claim| claim.resource_claim_template_name);
    templates.next().ok_or_else(|| anyhow::anyhow!("the pod names no template"))
}

/// A pod with the claim that admission would have added. Without annotations no webhook sees it.
fn ghost(name: &str, template: &str, annotations: &Value) -> Value {
    let mut ghost = pod(name, annotations);
    ghost["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "dranet"}]});
    ghost["spec"]["resourceClaims"] =
        json!([{"name": "dranet", "resourceClaimTemplateName": template}]);
    ghost
}

/// The text of the event on the pods.
async fn told(scope: &Scope) -> anyhow::Result<String> {
    eventually(SOON, async || {
        let all = scope.api::<Event>().list(&ListParams::default()).await?.items;
        let mut told =
            all.into_iter().filter(|event| event.reason.as_deref() == Some("TemplateNotCreated"));
        let text = told.find_map(|event| event.message);
        Ok(text.map_or_else(|| Check::NotYet("no event".to_owned()), Check::Done))
    })
    .await
}

/// Tries to write the decision of admission on a pod that exists, by all ways that change annotations.
async fn plan_is_refused(scope: &Scope, name: &str, template: &str) -> anyhow::Result<()> {
    let forged = Patch::Merge(json!({"metadata": {"annotations": {
        "dranet.io/aligned-nics": "4",
        "dranet.io/plan": format!("4 GPUs and 4 NICs; template {template}"),
    }}}));
    let pods = scope.api::<Pod>();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    // A policy takes effect some time after it is written.
    eventually(SOON, async || {
        let ways = [
            pods.patch(name, &dry_run, &forged).await,
            pods.patch_status(name, &dry_run, &forged).await,
        ];
        let are_refused = ways.iter().all(
            |answer| matches!(answer, Err(Error::Api(status)) if status.message.contains(POLICY)),
        );
        Ok(Check::that(are_refused, || format!("{ways:?}")))
    })
    .await
}
