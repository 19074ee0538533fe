//! Kubernetes accepts each object that the chart renders, with every field; objects of other
//! projects are checked against those projects' published definitions. The chart's pods satisfy Pod
//! Security, and its policies are valid.

use std::{fs, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, binaries,
    chart::{Helm, NAMESPACE, PLATFORMS},
    eventually, manifest,
    suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        every_object_is_accepted_with_all_its_fields,
        the_policies_are_valid,
        pods_satisfy_the_strictest_possible_level,
        the_pod_of_helm_test_is_accepted,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn every_object_is_accepted_with_all_its_fields(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        namespace(&plane.client(), "privileged").await?;
        for entry in fs::read_dir(binaries::chart_tool("definitions")?)? {
            scope.apply_file(&entry?.path()).await?;
        }
        let helm = Helm::offline()?;
        for (platform, values) in PLATFORMS {
            let objects = helm.template(values).await.context(platform)?;
            assert!(objects.len() > 15, "{platform}: {}", objects.len());
            for object in objects {
                manifest::check(&plane.client(), &object, NAMESPACE).await.context(platform)?;
            }
        }
        Ok(())
    })
    .await
}

/// Kubernetes checks the types of a policy's expressions and reports the result in its status.
async fn the_policies_are_valid(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut names = Vec::new();
        for object in Helm::offline()?.template(&[]).await? {
            if kind(&object) == "ValidatingAdmissionPolicy" {
                names.push(object.name_any());
                scope.apply(object).await?;
            }
        }
        assert_eq!(names.len(), 7, "{names:?}");
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(plane.client());
        for name in names {
            eventually(SOON, async || {
                let policy = policies.get(&name).await?;
                let status = policy.status.unwrap_or_default();
                let is_current = status.observed_generation == policy.metadata.generation;
                let checking = status.type_checking.unwrap_or_default();
                let warnings = checking.expression_warnings.unwrap_or_default();
                anyhow::ensure!(warnings.is_empty(), "{name}: {warnings:#?}");
                Ok(Check::that(is_current, || format!("{name} is not checked yet")))
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// Pod Security's level `restricted`, except for the driver.
async fn pods_satisfy_the_strictest_possible_level(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let client = plane.client();
    let helm = Helm::offline()?;
    let mut seen = 0;
    for (platform, values) in PLATFORMS {
        for object in helm.template(values).await.context(platform)? {
            let Some(template) = object.data.pointer("/spec/template") else { continue };
            let mut pod: Pod = serde_json::from_value(template.clone())?;
            pod.metadata.name = Some("probe".to_owned());
            let name = object.name_any();
            // Only the level `privileged` allows the host's network.
            let is_on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
            for (level, is_allowed) in [("restricted", !is_on_host), ("privileged", true)] {
                namespace(&client, level).await?;
                let answer = eventually(SOON, async || {
                    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
                    let dry = PostParams { dry_run: true, ..PostParams::default() };
                    let answer = pods.create(&dry, &pod).await;
                    let is_as_expected = answer.is_ok() == is_allowed;
                    Ok(Check::that(is_as_expected, || {
                        format!("{name} of {platform} at level {level}: {answer:?}")
                    }))
                });
                answer.await?;
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    Ok(())
}

/// The pod of `helm test` satisfies the level `restricted`, and exists only where admission changes
/// pods of its namespace.
async fn the_pod_of_helm_test_is_accepted(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let client = plane.client();
    let helm = Helm::offline()?;
    let fixed = ["template", "dranet", ".", "--namespace", NAMESPACE];
    let only = ["--show-only=templates/tests/aligned-pod.yaml", "--set=image.registry=example.org"];
    let rendered = helm.run(fixed.iter().chain(&only)).await?;
    let pods = manifest::parse(&rendered)?;
    assert_eq!(pods.len(), 1, "{rendered}");
    let annotations = pods[0].annotations();
    assert!(annotations.contains_key("dranet.io/aligned-nics"), "{annotations:?}");
    eventually(SOON, async || {
        // Another test's namespace of this name may still end.
        namespace(&client, "restricted").await?;
        let answer = manifest::check(&client, &pods[0], NAMESPACE).await;
        Ok(Check::that(answer.is_ok(), || format!("{answer:?}")))
    })
    .await?;
    let elsewhere = ["--set=admission.requiredNamespaceLabel=team=ml"];
    let none = helm.run(fixed.iter().chain(&only).chain(&elsewhere)).await;
    assert!(none.is_err(), "it would be denied: {none:?}");
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    Ok(())
}

/// Creates the chart's namespace with a level of Pod Security.
async fn namespace(client: &Client, level: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": labels},
    });
    let params = PatchParams::apply(manifest::FIELD_MANAGER).force();
    namespaces.patch(NAMESPACE, &params, &Patch::Apply(&namespace)).await?;
    Ok(())
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| &types.kind)
}
