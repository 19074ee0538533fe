//! Jobs with a `ComputeDomain` of NVIDIA's DRA driver. The definition of the kind is the driver's own
//! (`fixtures/nvidia-dra`). The driver is not here. Its part is played by the test: a device for
//! channel 0 on each node, the DeviceClass, and the ResourceClaimTemplate of each `ComputeDomain`, as
//! its sources make them. Nothing is prepared on a node.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    events::v1::Event,
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::json;
use tests::{Check, ControlPlane, Scope, binaries, eventually, lines::joined};

use super::{
    gangs::{end, job, run},
    site::{SOON, create, fabrics, placed, pod, pods, with_fabrics},
};

pub(super) const DEFINITION: &str = "fixtures/nvidia-dra/computedomains.yaml";
/// The words of the policy.
const REFUSED: &str = "no domains here";
const ASKS: &str = "dranet.io/compute-domain";
pub(super) const CLASS: &str = "compute-domain-default-channel.nvidia.com";
const DRIVER: &str = "compute-domain.nvidia.com";

pub(super) async fn a_job_gets_a_compute_domain_that_ends_with_it(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (1, 2), 1, &[], async |scope, installation| {
        let denied = create(scope, &asking("early")).await.expect_err("there is no driver");
        let denied = format!("{denied:#}");
        assert!(denied.contains("the API server has no ComputeDomains"), "{denied}");

        scope.apply_file(&binaries::in_tests(DEFINITION)).await?;
        install_channels(scope).await?;
        installation.start_replicas(1, &["--fabric-controller"]).await?;
        let domain = runs(scope).await?;
        // The garbage collector deletes it with the Job.
        end(scope, "train").await?;
        eventually(SOON, async || {
            let left = domains(scope).list(&ListParams::default()).await?.items;
            Ok(Check::that(left.is_empty(), || format!("{domain} is left")))
        })
        .await?;
        refuses_a_second_channel(scope).await
    })
    .await
}

/// A policy refuses the `ComputeDomain` of a job: its pods and the job say so, and so does
/// `kubectl dranet fabric`. The pods run when the policy is gone.
pub(super) async fn a_refused_compute_domain_is_reported(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let own = Arc::clone(&plane);
    with_fabrics(plane, (1, 2), 1, &[], async |scope, installation| {
        scope.apply_file(&binaries::in_tests(DEFINITION)).await?;
        install_channels(scope).await?;
        installation.start_replicas(1, &["--fabric-controller"]).await?;
        let refused = policy(scope).await?;
        let mut train = job("train", 2, true);
        let template = &mut train.spec.get_or_insert_default().template;
        let metadata = template.metadata.get_or_insert_default();
        metadata.annotations.get_or_insert_default().insert(ASKS.into(), "auto".into());
        let labels = run(scope, &train).await?;
        let about = eventually(SOON, async || {
            let pods = pods(scope, &labels).await?;
            let names = pods.iter().map(ResourceExt::name_any).chain(["train".to_owned()]);
            let names: Vec<_> = names.collect();
            Ok(if names.len() == 3 {
                Check::Done(names)
            } else {
                Check::NotYet(format!("{names:?}"))
            })
        })
        .await?;
        eventually(SOON, async || {
            let events = scope.api::<Event>().list(&ListParams::default()).await?.items;
            let told = events.iter().filter(|event| {
                event.reason.as_deref() == Some("ComputeDomainNotCreated")
                    && event.note.as_deref().is_some_and(|note| note.contains(REFUSED))
            });
            let told: BTreeSet<_> =
                told.filter_map(|event| event.regarding.clone()?.name).collect();
            let all = about.iter().all(|name| told.contains(name));
            Ok(Check::that(all, || format!("events about {told:?}, not all of {about:?}")))
        })
        .await?;
        let kubeconfig = format!("--kubeconfig={}", own.kubeconfig().display());
        let shown = own.program("kubectl-dranet")?.args(["fabric", &kubeconfig]).spawn()?;
        let shown = shown.wait_for_success(SOON).await?;
        assert!(shown.contains("Job ") && joined(&shown).contains(REFUSED), "{shown}");
        for (kind, name) in refused {
            let now = DeleteParams::default();
            cluster_wide(scope, &kind).delete(&name, &now).await?;
        }
        let made = eventually(SOON, async || {
            let made = domains(scope).list(&ListParams::default()).await?.items.into_iter().next();
            Ok(made.map_or_else(|| Check::NotYet("no ComputeDomain".to_owned()), Check::Done))
        })
        .await?;
        let name = made.data["spec"]["channel"]["resourceClaimTemplate"]["name"].as_str();
        create_template(scope, name.context("the name of its template")?).await?;
        placed(scope, &labels, 2).await?;
        end(scope, "train").await
    })
    .await
}

/// A policy that refuses `ComputeDomain`s in the namespace. Returns when it is in force: kinds and names
/// of its objects.
async fn policy(scope: &Scope) -> anyhow::Result<Vec<(String, String)>> {
    let name = format!("no-domains-{}", scope.namespace());
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["resource.nvidia.com"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["computedomains"],
            }]},
            "validations": [{"expression": "false", "message": REFUSED}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let mut made = Vec::new();
    for object in [binding, policy] {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        scope.apply(serde_json::from_value(object)?).await?;
        made.push((kind, name.clone()));
    }
    let probe: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {"name": "probe"},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "probe"}}},
    }))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(SOON, async || {
        let created = domains(scope).create(&dry_run, &probe).await;
        let refused = matches!(&created, Err(kube::Error::Api(it)) if it.message.contains(REFUSED));
        Ok(Check::that(refused, || format!("{created:?}")))
    })
    .await?;
    Ok(made)
}

fn cluster_wide(scope: &Scope, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(scope.client(), &ApiResource::from_gvk(&kind))
}

/// Runs a Job of two pods. Returns the name of its `ComputeDomain`.
async fn runs(scope: &Scope) -> anyhow::Result<String> {
    let mut train = job("train", 2, true);
    let template = &mut train.spec.get_or_insert_default().template;
    let metadata = template.metadata.get_or_insert_default();
    metadata.annotations.get_or_insert_default().insert(ASKS.into(), "auto".into());
    let labels = run(scope, &train).await?;
    let made = eventually(SOON, async || {
        let made = domains(scope).list(&ListParams::default()).await?.items;
        Ok(made
            .into_iter()
            .next()
            .map_or_else(|| Check::NotYet("no ComputeDomain".to_owned()), Check::Done))
    })
    .await?;
    let owners: Vec<_> =
        made.owner_references().iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
    assert_eq!(owners, ["Job train"]);
    assert_eq!(made.data["spec"]["numNodes"], 0, "the driver holds no pod back for others");
    assert_eq!(made.data["spec"]["channel"]["allocationMode"], "Single");
    let name = made.data["spec"]["channel"]["resourceClaimTemplate"]["name"].as_str();
    create_template(scope, name.context("the name of its template")?).await?;

    placed(scope, &labels, 2).await?;
    let claims = scope.api::<ResourceClaim>();
    let mut on = BTreeSet::new();
    for pod in pods(scope, &labels).await? {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let resources = container.and_then(|container| container.resources.clone());
        let names = resources.and_then(|resources| resources.claims).unwrap_or_default();
        assert!(names.iter().any(|claim| claim.name == "dranet-compute-domain"), "{names:?}");
        let statuses = pod.status.as_ref().and_then(|it| it.resource_claim_statuses.as_ref());
        for status in statuses.into_iter().flatten() {
            let claim = claims.get(status.resource_claim_name.as_deref().unwrap_or_default());
            let allocation = claim.await?.status.and_then(|status| status.allocation);
            let devices = allocation.and_then(|it| it.devices).and_then(|it| it.results);
            let channels = devices.into_iter().flatten().filter(|device| device.driver == DRIVER);
            on.extend(channels.map(|device| device.pool));
        }
    }
    assert_eq!(on.len(), 2, "each pod has the channel of its node: {on:?}");
    Ok(made.name_any())
}

/// A node has one channel, so a pod that has a claim for it cannot get another one.
async fn refuses_a_second_channel(scope: &Scope) -> anyhow::Result<()> {
    create_template(scope, "own-channel").await?;
    let mut pod = asking("twice");
    let claim = json!([{"name": "imex", "resourceClaimTemplateName": "own-channel"}]);
    pod.spec.get_or_insert_default().resource_claims = serde_json::from_value(claim)?;
    eventually(SOON, async || {
        let Err(denied) = create(scope, &pod).await else {
            let now = DeleteParams::default().grace_period(0);
            scope.api::<Pod>().delete("twice", &now).await?;
            return Ok(Check::NotYet("admission has not seen the template".to_owned()));
        };
        let denied = format!("{denied:#}");
        let is_it = denied.contains("claim `imex` of the pod asks for the channel");
        Ok(Check::that(is_it, || denied))
    })
    .await
}

/// A pod of a named group of two.
fn asking(name: &str) -> Pod {
    let mut pod = pod(name, "alone", 2, true);
    pod.metadata.annotations.get_or_insert_default().insert(ASKS.into(), "auto".into());
    pod
}

pub(super) fn domains(scope: &Scope) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("resource.nvidia.com", "v1beta1", "ComputeDomain");
    Api::namespaced_with(scope.client(), scope.namespace(), &ApiResource::from_gvk(&kind))
}

/// The template as NVIDIA's driver creates it, without the configuration that only its own kubelet
/// plugin reads.
async fn create_template(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let template = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "channel", "exactly": {"deviceClassName": CLASS}},
        ]}}},
    }))?;
    scope.api::<ResourceClaimTemplate>().create(&PostParams::default(), &template).await?;
    Ok(())
}

/// The DeviceClass of the driver's chart, and channel 0 of each node.
pub(super) async fn install_channels(scope: &Scope) -> anyhow::Result<()> {
    let expression = format!(
        "device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'channel' && \
         device.attributes['{DRIVER}'].id == 0"
    );
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    });
    scope.apply(serde_json::from_value(class)?).await?;
    for node in fabrics(scope).await?.into_keys() {
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{node}-channels")},
            "spec": {
                "driver": DRIVER, "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "channel-0", "attributes": {
                    "type": {"string": "channel"}, "id": {"int": 0},
                }}],
            },
        });
        scope.apply(serde_json::from_value(slice)?).await?;
    }
    Ok(())
}
