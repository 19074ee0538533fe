//! Admission as a server: behind its Service, with two replicas, a certificate that it issues, and
//! garbage collection of its templates.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{Event, Pod, ResourceQuota},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, binaries, chart::printed, eventually, installation::Installation,
    suite::Test, with_scope,
};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        another_replica_leads_when_the_leader_is_killed,
        a_lost_authority_is_restored,
        only_unused_templates_are_collected,
        a_deleted_template_is_recreated_for_a_waiting_pod,
        a_copy_in_another_namespace_gets_a_template_there,
        a_node_pool_scaled_to_zero_denies_no_pod,
        a_claim_that_escapes_a_quota_is_denied,
        a_claim_that_escapes_a_quota_gets_a_warning,
        a_template_written_by_hand_gets_warnings,
        a_manifest_can_be_applied_again,
        a_refused_template_is_told_in_one_sentence,
        a_pod_of_nearly_three_mebibytes_is_answered,
        every_manifest_is_accepted_with_all_its_fields,
        admission_may_touch_its_own_objects_and_no_others,
        the_fabric_controller_may_write_pods_and_labels_and_nothing_else,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Runs a test with one GB300 node and two replicas of admission.
async fn with_two(
    plane: Arc<ControlPlane>,
    args: &[&str],
    test: impl AsyncFnOnce(&Scope, &mut Installation<'_>, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let node = installation.gb300("one").await?;
        installation.start_replicas(2, args).await?;
        test(scope, &mut installation, &node).await
    })
    .await
}

async fn another_replica_leads_when_the_leader_is_killed(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(plane, &[], async |_, installation, _| {
        let first = installation.leader().await?;
        let of = |installation: &Installation<'_>, identity: &str| {
            let pid = identity.rsplit('_').next().unwrap_or_default().to_owned();
            installation
                .replicas()
                .iter()
                .position(|replica| replica.process().pid().to_string() == pid)
        };
        let index = of(installation, &first).context("the leader is one of the replicas")?;
        installation.kill_replica(index).await?;
        eventually(SOON, async || {
            let now = installation.leader().await?;
            Ok(Check::that(of(installation, &now).is_some(), || format!("`{now}` leads")))
        })
        .await?;
        installation.answers().await
    })
    .await
}

async fn a_lost_authority_is_restored(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, installation, _| {
        let before = installation.certificates().await?.data.context("it holds certificates")?;
        assert_eq!(before.len(), 4);
        installation.distrust().await?;
        eventually(SOON, async || {
            let refused = create(scope, pod("probe", "x")).await.unwrap_err().to_string();
            let distrusted = refused.contains("failed calling webhook");
            Ok(Check::that(distrusted, || refused))
        })
        .await?;
        installation.answers().await?;
        assert_eq!(installation.certificates().await?.data, Some(before), "nothing was recreated");
        Ok(())
    })
    .await
}

async fn only_unused_templates_are_collected(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_two(plane, &["--keep-unused-seconds=1"], async |scope, _, _| {
        scope.apply_yaml(&by_hand("by-hand")).await?;
        create(scope, pod("one", "1")).await?;
        create(scope, pod("two", "2")).await?;
        scope.bound("one", SOON).await?;
        scope.bound("two", SOON).await?;
        let used = template_of(scope, "two").await?;
        let unused = template_of(scope, "one").await?;
        scope.delete_pod("one").await?;
        wait_for_templates(scope, |names| !names.contains(&unused)).await?;
        // If requested again at once, it is recreated, and the marks have removed nothing else.
        create(scope, pod("again", "1")).await?;
        assert_eq!(template_of(scope, "again").await?, unused);
        wait_for_templates(scope, |names| {
            ["by-hand", &used, &unused].iter().all(|name| names.iter().any(|there| there == name))
        })
        .await?;
        scope.bound("again", SOON).await?;
        Ok(())
    })
    .await
}

async fn a_deleted_template_is_recreated_for_a_waiting_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, _, _| {
        // The gate keeps it waiting for a node while template and claim are deleted.
        let mut held = pod("held", "2");
        held.spec.as_mut().context("it has a spec")?.scheduling_gates =
            Some(vec![serde_json::from_value(json!({"name": "tests/held"}))?]);
        create(scope, held).await?;
        let name = template_of(scope, "held").await?;
        let templates = scope.api::<ResourceClaimTemplate>();
        wait_for_templates(scope, |names| names.contains(&name)).await?;
        let before = templates.get(&name).await?;
        templates.delete(&name, &DeleteParams::default()).await?;
        let claims = scope.api::<ResourceClaim>();
        claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let after = eventually(SOON, async || {
            let there = templates.get_opt(&name).await?;
            Ok(there.map_or_else(|| Check::NotYet(format!("no `{name}`")), Check::Done))
        })
        .await?;
        assert_ne!(before.uid(), after.uid());
        assert_eq!((before.labels(), &before.spec), (after.labels(), &after.spec));
        let ungate = kube::api::Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        scope.api::<Pod>().patch("held", &kube::api::PatchParams::default(), &ungate).await?;
        scope.bound("held", SOON).await?;
        Ok(())
    })
    .await
}

async fn a_copy_in_another_namespace_gets_a_template_there(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(Arc::clone(&plane), &[], async |scope, _, _| {
        let first = create(scope, pod("first", "2")).await?;
        with_scope(plane.client(), async |other| {
            let mut copy = first.clone();
            copy.metadata.namespace = None;
            copy.metadata.resource_version = None;
            copy.metadata.uid = None;
            copy.status = None;
            let copied = create(other, copy).await?;
            assert_eq!(copied.annotations(), first.annotations());
            other.bound("first", SOON).await?;
            Ok(())
        })
        .await
    })
    .await
}

async fn a_node_pool_scaled_to_zero_denies_no_pod(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, installation, node| {
        installation.remembered().await?;
        let before = create(scope, pod("before", "2")).await?;
        installation.remove_node(node).await?;
        eventually(SOON, async || {
            let denied = create(scope, pod("three", "3")).await.unwrap_err().to_string();
            Ok(Check::that(denied.contains("remembered"), || denied))
        })
        .await?;
        let after = create(scope, pod("after", "2")).await?;
        let name = |pod: &Pod| {
            let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.clone());
            claims
                .unwrap_or_default()
                .first()
                .and_then(|it| it.resource_claim_template_name.clone())
        };
        assert_eq!(name(&after), name(&before), "the same claim as with the node");
        // A replica that starts only now knows it too.
        installation.kill_replica(0).await?;
        installation.kill_replica(0).await?;
        installation.start_replica(2, &[]).await?;
        installation.answers().await?;
        create(scope, pod("later", "2")).await?;
        Ok(())
    })
    .await
}

const ESCAPED: &str = "quota `gpus` limits requests.nvidia.com/gpu, which does not count the claim \
                       that replaces the limits of this pod; limit \
                       gpu.nvidia.com.deviceclass.resource.k8s.io/devices";
const QUOTA: &str = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: gpus}, \
                     spec: {hard: {requests.nvidia.com/gpu: \"8\"}}}";

async fn a_claim_that_escapes_a_quota_is_denied(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, _, _| {
        scope.apply_yaml(QUOTA).await?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        eventually(SOON, async || {
            let answer = scope.api::<Pod>().create(&dry_run, &pod("quota", "2")).await;
            let denied = answer.as_ref().is_err_and(|error| error.to_string().contains(ESCAPED));
            Ok(Check::that(denied, || format!("{answer:?}")))
        })
        .await
    })
    .await
}

async fn a_claim_that_escapes_a_quota_gets_a_warning(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(Arc::clone(&plane), &["--quota-escape=warn"], async |scope, _, _| {
        scope.apply_yaml(QUOTA).await?;
        eventually(SOON, async || {
            let body = serde_json::to_vec(&pod("quota", "2"))?;
            let warnings =
                tests::warnings::of_create(&plane, scope.namespace(), "api/v1", "pods", body)
                    .await?;
            let told = warnings.iter().any(|warning| warning.contains(ESCAPED));
            Ok(Check::that(told, || format!("{warnings:?}")))
        })
        .await
    })
    .await
}

async fn a_template_written_by_hand_gets_warnings(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_two(Arc::clone(&plane), &[], async |scope, installation, _| {
        let template = tests::manifest::parse(&by_hand("by-hand"))?;
        let create = async |name: &str| {
            let mut template = template[0].clone();
            template.metadata.name = Some(name.to_owned());
            let body = serde_json::to_vec(&template)?;
            let group = "apis/resource.k8s.io/v1";
            let resource = "resourceclaimtemplates";
            tests::warnings::of_create(&plane, scope.namespace(), group, resource, body).await
        };
        let warnings = eventually(SOON, async || {
            let warnings = create("by-hand").await?;
            let none = warnings.is_empty();
            Ok(if none { Check::NotYet("no warning".into()) } else { Check::Done(warnings) })
        })
        .await?;
        assert!(warnings.iter().any(|warning| warning.contains("numaNode")), "{warnings:?}");
        annotations_without_effect_get_warnings(&plane, scope).await?;
        installation.kill_admission();
        assert_eq!(create("by-hand").await?, Vec::<String>::new(), "it never blocks");
        Ok(())
    })
    .await
}

/// Annotations that are misspelt in a Job's pod template, beside a Deployment's, or changed on a pod.
async fn annotations_without_effect_get_warnings(
    plane: &ControlPlane,
    scope: &Scope,
) -> anyhow::Result<()> {
    let template = |annotation: &str| {
        json!({ "metadata": { "labels": { "app": "a" }, "annotations": { annotation: "1" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }] } })
    };
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "typo" },
        "spec": { "template": template("dranet.io/aligned-nic") } });
    let mut deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "beside", "annotations": { "dranet.io/aligned-nics": "1" } },
        "spec": { "selector": { "matchLabels": { "app": "a" } }, "template": template("other") } });
    deployment["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
    for (group, resource, object, expected) in [
        ("apis/batch/v1", "jobs", job, "did you mean dranet.io/aligned-nics?"),
        ("apis/apps/v1", "deployments", deployment, "move it to spec.template.metadata"),
    ] {
        let body = serde_json::to_vec(&object)?;
        let told =
            tests::warnings::of_create(plane, scope.namespace(), group, resource, body).await?;
        assert!(told.iter().any(|warning| warning.contains(expected)), "{resource}: {told:?}");
    }
    create(scope, pod("later", "2")).await?;
    for (key, is_told) in [("dranet.io/aligned-nics", true), ("example.com/other", false)] {
        let pod = (scope.namespace(), "later");
        let told = tests::warnings::of_annotating(plane, pod, (key, "1")).await?;
        let has_it =
            told.iter().any(|warning| warning.contains("has no effect on a pod that exists"));
        assert_eq!(has_it, is_told, "{key}: {told:?}");
    }
    Ok(())
}

async fn a_pod_of_nearly_three_mebibytes_is_answered(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, _, _| {
        let mut large = pod("large", "2");
        let container = &mut large.spec.as_mut().context("it has a spec")?.containers[0];
        // Arguments of a process may be larger than the 1.5 MiB that etcd stores; the webhook sees
        // the pod before etcd does.
        container.args = Some(vec!["x".repeat(100 << 10); 25]);
        let error = create(scope, large).await.unwrap_err().to_string();
        assert!(!error.contains("webhook"), "{error}");
        assert!(error.contains("larger than max"), "it is etcd that refuses it: {error}");
        Ok(())
    })
    .await
}

async fn every_manifest_is_accepted_with_all_its_fields(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        Installation::install(&plane, scope).await?;
        for file in tests::installation::manifests()? {
            for object in tests::manifest::read(&file)? {
                tests::manifest::check(&plane.client(), &object, "dranet-system").await?;
            }
        }
        Ok(())
    })
    .await
}

/// An access review: verb, group, resource, namespace, name, and the expected result.
type Right = (&'static str, &'static str, &'static str, &'static str, &'static str, bool);

/// Checks with the API server what a service account of `deploy` may do.
async fn may(
    installation: &Installation<'_>,
    account: &str,
    rights: &[Right],
) -> anyhow::Result<()> {
    let client = installation.client_as(account).await?;
    for (verb, group, resource, namespace, name, expected) in rights {
        let review: SelfSubjectAccessReview = serde_json::from_value(json!({"spec": {
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource,
                "namespace": namespace, "name": name,
            },
        }}))?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let found = answer.status.is_some_and(|status| status.allowed);
        assert_eq!(found, *expected, "{account}: {verb} {resource} {namespace}/{name}");
    }
    Ok(())
}

const OWN: &str = "dranet-system";
const HOOKS: &str = "admissionregistration.k8s.io";

async fn admission_may_touch_its_own_objects_and_no_others(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let rights = [
            ("update", "", "secrets", OWN, "admission-certificates", true),
            ("get", "", "secrets", OWN, "another", false),
            ("list", "", "secrets", OWN, "", false),
            ("create", "", "secrets", OWN, "", false),
            ("get", "", "secrets", "default", "admission-certificates", false),
            ("update", "", "configmaps", OWN, "admission-machines", true),
            ("update", "", "configmaps", OWN, "another", false),
            ("update", "coordination.k8s.io", "leases", OWN, "admission", true),
            ("update", "coordination.k8s.io", "leases", OWN, "another", false),
            ("patch", HOOKS, "mutatingwebhookconfigurations", "", "admission.dranet.io", false),
            ("patch", HOOKS, "validatingwebhookconfigurations", "", "lint.dranet.io", false),
            ("create", HOOKS, "validatingwebhookconfigurations", "", "", false),
            ("delete", "resource.k8s.io", "resourceclaimtemplates", "default", "a", true),
            ("delete", "resource.k8s.io", "resourceclaims", "default", "a", false),
            ("create", "", "pods", "default", "", false),
            ("delete", "", "pods", "default", "a", false),
            ("patch", "", "pods", "default", "a", false),
            ("patch", "", "pods/status", "default", "a", false),
            ("create", "", "pods/eviction", "default", "a", false),
            ("get", "batch", "jobs", "default", "a", false),
            ("patch", "", "nodes", "", "a", false),
            ("update", "", "nodes", "", "a", false),
        ];
        may(&installation, "admission", &rights).await?;
        let rights = [
            ("get", "", "secrets", OWN, "admission-certificates", true),
            ("update", "", "secrets", OWN, "admission-certificates", false),
            ("patch", HOOKS, "mutatingwebhookconfigurations", "", "admission.dranet.io", true),
            ("patch", HOOKS, "mutatingwebhookconfigurations", "", "another", false),
            ("watch", HOOKS, "mutatingwebhookconfigurations", "", "admission.dranet.io", true),
            ("watch", HOOKS, "mutatingwebhookconfigurations", "", "", false),
            ("patch", HOOKS, "validatingwebhookconfigurations", "", "lint.dranet.io", true),
            ("create", HOOKS, "validatingwebhookconfigurations", "", "", false),
            ("create", "resource.k8s.io", "resourceclaimtemplates", "default", "", false),
            ("list", "", "pods", "default", "", false),
        ];
        may(&installation, "admission-authority", &rights).await
    })
    .await
}

async fn the_fabric_controller_may_write_pods_and_labels_and_nothing_else(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let rights = [
            ("update", "coordination.k8s.io", "leases", OWN, "fabric-controller", true),
            ("update", "coordination.k8s.io", "leases", OWN, "admission", false),
            ("patch", "", "pods", "default", "a", true),
            ("update", "", "pods", "default", "a", false),
            ("create", "", "pods", "default", "", false),
            ("delete", "", "pods", "default", "a", false),
            ("get", "batch", "jobs", "default", "a", true),
            ("patch", "batch", "jobs", "default", "a", false),
            ("patch", "", "nodes", "", "a", true),
            ("update", "", "nodes", "", "a", false),
            ("delete", "", "nodes", "", "a", false),
            ("create", "resource.k8s.io", "resourceclaimtemplates", "default", "", false),
            ("get", "", "secrets", OWN, "admission-certificates", false),
            ("patch", HOOKS, "mutatingwebhookconfigurations", "", "admission.dranet.io", false),
        ];
        may(&installation, "fabric-controller", &rights).await
    })
    .await
}

async fn create(scope: &Scope, pod: Pod) -> anyhow::Result<Pod> {
    Ok(scope.api::<Pod>().create(&PostParams::default(), &pod).await?)
}

async fn template_of(scope: &Scope, pod: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = scope.api();
    let claims = pods.get(pod).await?.spec.and_then(|spec| spec.resource_claims);
    let name =
        claims.unwrap_or_default().into_iter().find_map(|it| it.resource_claim_template_name);
    name.with_context(|| format!("pod `{pod}` refers to a template"))
}

async fn wait_for_templates(
    scope: &Scope,
    wanted: impl Fn(&[String]) -> bool,
) -> anyhow::Result<()> {
    let templates = scope.api::<ResourceClaimTemplate>();
    eventually(SOON, async || {
        let names: Vec<String> = templates
            .list(&ListParams::default())
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        Ok(Check::that(wanted(&names), || format!("templates {names:?}")))
    })
    .await
}

fn pod(name: &str, nics: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": nics}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    }))
    .unwrap()
}

/// A template with a constraint that no GPU here can satisfy: upstream's NICs
/// publish the attribute, the GPUs do not.
fn by_hand(name: &str) -> String {
    format!(
        "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: {name}}}
spec:
  spec:
    devices:
      requests:
      - {{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com}}}}
      - {{name: nic, exactly: {{deviceClassName: dranet.net}}}}
      constraints:
      - {{requests: [gpu, nic], matchAttribute: dra.net/numaNode}}
"
    )
}

/// Tools apply a manifest again and again, and compare it with what is there. The API server merges
/// it into the pod that admission has rewritten.
async fn a_manifest_can_be_applied_again(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let config = format!("--kubeconfig={}", plane.kubeconfig().display());
    with_two(plane, &["--scheduler-name", "dranet-scheduler"], async |scope, _, _| {
        let namespace = format!("--namespace={}", scope.namespace());
        let argo = ["--server-side", "--field-manager=argocd-controller", "--force-conflicts"];
        let flux = ["--server-side", "--field-manager=kustomize-controller", "--force-conflicts"];
        for (name, flags) in [
            ("client", &[][..]),
            ("server", &["--server-side"]),
            ("argo", &argo),
            ("flux", &flux),
            // A tool takes a pod over from another.
            ("client", &argo),
            ("argo", &flux),
        ] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": "1"}},
                "spec": {
                    "schedulerName": "default-scheduler",
                    "tolerations": [{"key": "team", "operator": "Exists"}],
                    "containers": [{
                        "name": "main", "image": "busybox",
                        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}},
                    }],
                },
            });
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), pod.to_string())?;
            let file = format!("--filename={}", file.path().display());
            for verb in ["apply", "apply", "diff"] {
                let said = Command::new(binaries::kubernetes("kubectl")?)
                    .args([verb, &config, &namespace, &file])
                    .args(flags)
                    .output()
                    .await?;
                printed(said).with_context(|| format!("{verb} {flags:?}"))?;
            }
            let pod: Pod = Api::namespaced(scope.client(), scope.namespace()).get(name).await?;
            let text = serde_json::to_string(&pod.spec)?;
            assert!(!text.contains("\"nvidia.com/gpu\":\"1\""), "{text}");
            assert!(text.contains("resourceClaimTemplateName"), "{text}");
        }
        Ok(())
    })
    .await
}

async fn a_refused_template_is_told_in_one_sentence(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_two(plane, &[], async |scope, _, _| {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
            "spec": {"hard": {"count/resourceclaimtemplates.resource.k8s.io": "0"}},
        });
        scope.apply(serde_json::from_value(quota)?).await?;
        let quotas: Api<ResourceQuota> = scope.api();
        eventually(SOON, async || {
            let status = quotas.get("none").await?.status;
            let is_counted = status.is_some_and(|status| status.used.is_some());
            Ok(Check::that(is_counted, || "the quota counts nothing yet".to_owned()))
        })
        .await?;
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "pod", "annotations": {"dranet.io/aligned-nics": "1"}},
            "spec": {"containers": [{
                "name": "main", "image": "busybox",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }]},
        }))?;
        scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
        let events: Api<Event> = scope.api();
        let told = eventually(SOON, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let told =
                all.into_iter().find(|event| event.reason.as_deref() == Some("TemplateRefused"));
            let text = told.and_then(|event| event.message);
            Ok(text.map_or_else(|| Check::NotYet("no event".to_owned()), Check::Done))
        })
        .await?;
        assert_eq!(
            told,
            "the pod waits, as its ResourceClaimTemplate is refused: exceeded quota: none, \
             requested: count/resourceclaimtemplates.resource.k8s.io=1, used: \
             count/resourceclaimtemplates.resource.k8s.io=0, limited: \
             count/resourceclaimtemplates.resource.k8s.io=0"
        );
        quotas.delete("none", &DeleteParams::default()).await?;
        scope.bound("pod", SOON).await?;
        Ok(())
    })
    .await
}
