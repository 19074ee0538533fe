//! Pods as Kubernetes' own components create and change them: by controllers, with the defaults of
//! a `LimitRange`, under a quota, next to templates of other users.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Event, Pod, ResourceQuota},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually, installation::Installation, suite::Test, with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const GPU: &str = "nvidia.com/gpu";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        pods_of_controllers_get_their_claims,
        a_limit_restored_by_a_limit_range_is_removed_again,
        a_quota_applies_if_the_class_replaces_the_limit,
        a_template_with_our_name_but_other_content_is_not_used,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Runs a test with one GB300 node and admission.
async fn with_one(
    plane: Arc<ControlPlane>,
    test: impl AsyncFnOnce(&Scope) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        test(scope).await
    })
    .await
}

async fn pods_of_controllers_get_their_claims(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_one(plane, async |scope| {
        let selector = |kind: &str| json!({"matchLabels": {"of": kind}});
        for object in [
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"selector": selector("d"), "template": template("d", "Always")}}),
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
                "spec": {"selector": selector("s"), "serviceName": "none",
                    "template": template("s", "Always")}}),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                "spec": {"template": template("j", "Never")}}),
        ] {
            scope.apply(serde_json::from_value(object)?).await?;
        }
        for kind in ["d", "s", "j"] {
            let name = eventually(SOON, async || {
                let of_kind = ListParams::default().labels(&format!("of={kind}"));
                let mut pods = scope.api::<Pod>().list(&of_kind).await?.into_iter();
                Ok(pods.next().map_or_else(
                    || Check::NotYet(format!("no pod of `{kind}`")),
                    |pod| Check::Done(pod.name_any()),
                ))
            })
            .await?;
            let pod = scope.bound(&name, SOON).await?;
            assert_eq!(limit(&pod), None, "{name}");
            let claim = claim_of(scope, &pod).await?;
            let label = claim.labels().get("dranet.io/template").cloned();
            assert_eq!(label, Some(template_of(&pod)?), "a claim names its template");
        }
        end_controllers(scope).await
    })
    .await
}

/// Deletes the controllers, so that they recreate no pods while the scope ends.
async fn end_controllers(scope: &Scope) -> anyhow::Result<()> {
    let now = DeleteParams::background();
    scope.api::<Deployment>().delete("d", &now).await?;
    scope.api::<StatefulSet>().delete("s", &now).await?;
    scope.api::<Job>().delete("j", &now).await?;
    let all = ListParams::default();
    eventually(SOON, async || {
        let sets = scope.api::<ReplicaSet>().list(&all).await?.items.len();
        let stateful = scope.api::<StatefulSet>().list(&all).await?.items.len();
        let jobs = scope.api::<Job>().list(&all).await?.items.len();
        let left = sets + stateful + jobs;
        Ok(Check::that(left == 0, || format!("{left} controllers are left")))
    })
    .await
}

/// The API server applies the default after our patch, and calls the webhook again.
async fn a_limit_restored_by_a_limit_range_is_removed_again(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_one(plane, async |scope| {
        scope
            .apply_yaml(
                "{apiVersion: v1, kind: LimitRange, metadata: {name: gpus}, \
                 spec: {limits: [{type: Container, default: {nvidia.com/gpu: \"2\"}}]}}",
            )
            .await?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let plain: Pod = serde_json::from_value(json!({
            "metadata": {"name": "plain"},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        }))?;
        eventually(SOON, async || {
            let found = limit(&scope.api::<Pod>().create(&dry_run, &plain).await?);
            Ok(Check::that(found.is_some(), || "no default is applied".into()))
        })
        .await?;
        let created = create(scope, "limited").await?;
        assert_eq!(limit(&created), None);
        let pod = scope.bound("limited", SOON).await?;
        let claim = claim_of(scope, &pod).await?;
        let devices = claim.status.and_then(|status| status.allocation?.devices?.results);
        let devices = devices.context("it is allocated")?;
        let gpus = devices.iter().filter(|device| device.driver == "gpu.nvidia.com").count();
        assert_eq!((gpus, devices.len()), (1, 2), "{devices:?}");
        Ok(())
    })
    .await
}

async fn a_quota_applies_if_the_class_replaces_the_limit(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_one(plane, async |scope| {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let planned = async || {
            let pod = scope.api::<Pod>().create(&dry_run, &pod("dry")?).await?;
            template_of(&pod)
        };
        let before = planned().await?;
        scope.apply_yaml(COUNTED).await?;
        eventually(SOON, async || {
            let name = planned().await?;
            Ok(Check::that(name != before, || "the class is not preferred".into()))
        })
        .await?;
        scope
            .apply_yaml(
                "{apiVersion: v1, kind: ResourceQuota, metadata: {name: gpus}, \
                 spec: {hard: {requests.nvidia.com/gpu: \"1\"}}}",
            )
            .await?;
        let quotas: Api<ResourceQuota> = scope.api();
        eventually(SOON, async || {
            let status = quotas.get("gpus").await?.status.and_then(|status| status.used);
            Ok(Check::that(status.is_some(), || "the quota is not counted yet".into()))
        })
        .await?;
        create(scope, "first").await?;
        scope.bound("first", SOON).await?;
        create(scope, "second").await?;
        eventually(SOON, async || {
            let of_pod = ListParams::default().fields("involvedObject.name=second");
            let events = scope.api::<Event>().list(&of_pod).await?;
            let texts: Vec<_> = events.iter().filter_map(|event| event.message.clone()).collect();
            let held = texts.iter().any(|text| text.contains("exceeded quota: gpus"));
            Ok(Check::that(held, || format!("{texts:?}")))
        })
        .await?;
        assert_eq!(scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items.len(), 1);
        Ok(())
    })
    .await
}

/// A class for GPUs that quotas count like the limit, by its extended resource.
const COUNTED: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: counted-gpus}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors:
  - cel:
      expression: device.driver == \"gpu.nvidia.com\" && device.attributes[\"gpu.nvidia.com\"].type == \"gpu\"
";

async fn a_template_with_our_name_but_other_content_is_not_used(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_one(Arc::clone(&plane), async |scope| {
        let name = template_of(&create(scope, "first").await?)?;
        with_scope(plane.client(), async |other| {
            let foreign = json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name},
                "spec": {"spec": {"devices": {"requests": [
                    {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
                ]}}},
            });
            other.apply(serde_json::from_value(foreign)?).await?;
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            eventually(SOON, async || {
                let answer = other.api::<Pod>().create(&dry_run, &pod("second")?).await;
                let text = format!("{answer:?}");
                let is_refused = text.contains("exists with different content; delete it");
                Ok(Check::that(answer.is_err() && is_refused, || text))
            })
            .await?;
            let templates = other.api::<ResourceClaimTemplate>();
            templates.delete(&name, &DeleteParams::default()).await?;
            eventually(SOON, async || match create(other, "second").await {
                Ok(_) => Ok(Check::Done(())),
                Err(error) => Ok(Check::NotYet(format!("{error:#}"))),
            })
            .await?;
            other.bound("second", SOON).await?;
            Ok(())
        })
        .await
    })
    .await
}

/// The limit of GPUs of the first container.
fn limit(pod: &Pod) -> Option<String> {
    let resources = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?;
    let maps = [&resources.limits, &resources.requests];
    maps.into_iter().flatten().find_map(|map| map.get(GPU)).map(|amount| amount.0.clone())
}

/// The template that the pod's only claim is made from.
fn template_of(pod: &Pod) -> anyhow::Result<String> {
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.clone());
    let claims = claims.unwrap_or_default();
    let [claim] = claims.as_slice() else { anyhow::bail!("{} claims", claims.len()) };
    claim.resource_claim_template_name.clone().context("it is of a template")
}

async fn claim_of(scope: &Scope, pod: &Pod) -> anyhow::Result<ResourceClaim> {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
    let mut names =
        statuses.unwrap_or_default().iter().filter_map(|it| it.resource_claim_name.as_ref());
    Ok(scope.api::<ResourceClaim>().get(names.next().context("the pod has a claim")?).await?)
}

async fn create(scope: &Scope, name: &str) -> anyhow::Result<Pod> {
    Ok(scope.api::<Pod>().create(&PostParams::default(), &pod(name)?).await?)
}

fn pod(name: &str) -> anyhow::Result<Pod> {
    let mut pod = template(name, "Always");
    pod["metadata"]["name"] = name.into();
    Ok(serde_json::from_value(pod)?)
}

/// One GPU with a NIC.
fn template(label: &str, restart: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"of": label},
            "annotations": {"dranet.io/aligned-nics": "1"},
        },
        "spec": {"restartPolicy": restart, "containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {GPU: "1"}}},
        ]},
    })
}
