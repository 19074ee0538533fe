//! Installs, upgrades, rolls back and uninstalls the chart with helm while pods have NICs. The pods
//! keep their devices, waiting pods are served, and nothing is left.
//!
//! There is no kubelet. The programs are processes with the permissions of the chart's service
//! accounts, and the test runs the commands of the chart's Job.

use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod},
        resource::v1::ResourceClaim,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{Discovery, Scope as Place, verbs},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Program, Scope, binaries,
    chart::{self, Helm, NAMESPACE, WITHOUT_PODS},
    eventually, gb300,
    installation::Installation,
    suite::Test,
    with_scope,
};
use tokio::process::Command;

const SOON: Duration = Duration::from_mins(1);
const IN_NAMESPACE: &str = "--namespace=dranet-system";
const VALUES: [&str; 2] =
    ["--set=image.registry=example.org/dranet", "--set=networkConfig.namespaces={none}"];

/// The arguments of helm, with the values that all installations here use.
fn with_values<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &[IN_NAMESPACE], &VALUES, &WITHOUT_PODS].concat()
}

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        pods_keep_their_nics_and_nothing_is_left,
        an_orphaned_webhook_blocks_no_pod,
        helm_adopts_the_plain_manifests,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_keep_their_nics_and_nothing_is_left(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::on(&plane.kubeconfig())?;
    let next = chart::next()?;
    remove_all(&plane.client()).await?;
    with_scope(plane.client(), async |scope| {
        scope.apply(gb300::gpu_class()?).await?;
        let nodes = [scope.node("one").await?.name_any(), scope.node("own").await?.name_any()];
        label(&plane.client(), &nodes[1], "topology.dranet.io/fabric", "mine").await?;
        let before = objects(&plane.client()).await?;

        helm.run(with_values(&["install", "dranet", ".", "--create-namespace"])).await?;
        let mut installation = Installation::installed(&plane, scope);
        installation.publish_gb300(&nodes[0]).await?;
        installation.start_replica(0, &["--fabric-controller"]).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        installation.answers().await?;

        // Four pods of one GPU and its NIC fill the node; the fifth waits.
        for name in ["a", "b", "c", "d"] {
            create(scope, name).await?;
            scope.bound(name, SOON).await?;
        }
        create(scope, "waits").await?;
        scope.unschedulable("waits", SOON).await?;
        let given = allocations(scope).await?;
        assert_eq!(given.len(), 4);

        let next = next.path().display().to_string();
        let upgrade = ["upgrade", "dranet", &next, IN_NAMESPACE, "--set=log.level=debug"];
        // The values of a release have none for what is new in the chart.
        let kept = helm.run([&upgrade[..], &["--reuse-values"]].concat());
        let refused = kept.await.unwrap_err().to_string();
        let told = "the value next.is is not set; to keep the values of a release, upgrade with \
                    --reset-then-reuse-values";
        assert!(refused.contains(told), "{refused}");
        for (round, command) in [
            (0, [&upgrade[..], &["--reset-then-reuse-values"]].concat()),
            (1, vec!["rollback", "dranet", "1", IN_NAMESPACE]),
        ] {
            let done = helm.run(command.clone());
            let pods = meanwhile(scope, round, done).await?;
            assert!(pods > 0, "no pod was created during `{}`", command[0]);
            installation.answers().await?;
            assert_eq!(allocations(scope).await?, given, "after `{}`", command[0]);
            let has_field = has_new_field(&plane.client()).await?;
            assert_eq!(has_field, round == 0, "the definition after `{}`", command[0]);
        }
        scope.delete_pod("a").await?;
        scope.bound("waits", SOON).await?;

        installation.kill_admission();
        installation.kill_fabric_controller(0);
        // As the fabric controller copies them; it removes those without a source while it runs.
        for level in ["block", "nvlink-domain"] {
            for key in [level.to_owned(), format!("{level}-from")] {
                label(&plane.client(), &nodes[0], &format!("topology.dranet.io/{key}"), "x")
                    .await?;
            }
        }
        for name in ["b", "c", "d", "waits"] {
            scope.delete_pod(name).await?;
        }
        // A claim that was created while its pod was being deleted belongs to no pod.
        let (now, every) = (DeleteParams::default(), ListParams::default());
        scope.api::<ResourceClaim>().delete_collection(&now, &every).await?;
        none_left::<ResourceClaim>(scope.api()).await?;
        let uninstalled = helm.run(["uninstall", "dranet", IN_NAMESPACE]);
        tokio::try_join!(uninstalled, run_cleanup(&plane, &installation))?;
        installation.forget_endpoints().await?;

        let own: BTreeSet<_> = [
            format!("Namespace//{NAMESPACE}"),
            format!("ServiceAccount/{NAMESPACE}/default"),
            format!("ConfigMap/{NAMESPACE}/kube-root-ca.crt"),
            // The test acts as the GPUs' driver.
            format!("ResourceSlice//{}-gpu.nvidia.com", nodes[0]),
        ]
        .into();
        eventually(SOON, async || {
            let after = objects(&plane.client()).await?;
            let left: Vec<_> = after.difference(&before).filter(|it| !own.contains(*it)).collect();
            let lost: Vec<_> = before.difference(&after).collect();
            let is_same = left.is_empty() && lost.is_empty();
            Ok(Check::that(is_same, || format!("left: {left:#?}, lost: {lost:#?}")))
        })
        .await?;
        Ok(())
    })
    .await?;
    remove_namespace(&plane.client()).await
}

/// Deleting the namespace without uninstalling also deletes the webhooks, since their leader has
/// made the namespace their owner.
async fn an_orphaned_webhook_blocks_no_pod(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::on(&plane.kubeconfig())?;
    remove_all(&plane.client()).await?;
    with_scope(plane.client(), async |scope| {
        helm.run(with_values(&["install", "dranet", ".", "--create-namespace"])).await?;
        let mut installation = Installation::installed(&plane, scope);
        installation.start_replica(0, &[]).await?;
        installation.answers().await?;
        installation.kill_admission();
        let refused = create(scope, "early").await.unwrap_err().to_string();
        assert!(refused.contains("failed calling webhook"), "{refused}");
        remove_namespace(&plane.client()).await?;
        eventually(SOON, async || {
            let answer = create(scope, "late").await;
            Ok(Check::that(answer.is_ok(), || format!("{answer:?}")))
        })
        .await?;
        // The release is lost with the namespace; cluster-scoped objects are not.
        remove_all(&plane.client()).await
    })
    .await
}

/// Applies the plain manifests as their users do, then installs with helm, later with other values.
async fn helm_adopts_the_plain_manifests(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::on(&plane.kubeconfig())?;
    remove_all(&plane.client()).await?;
    let before = objects(&plane.client()).await?;
    let apply = Command::new(binaries::kubernetes("kubectl")?)
        .arg(format!("--kubeconfig={}", plane.kubeconfig().display()))
        .args(["apply", "--server-side", "--kustomize"])
        .arg(binaries::in_tests("../deploy/manifests"))
        .output();
    chart::printed(apply.await?)?;
    let applied = objects(&plane.client()).await?;

    let refused = helm.run(with_values(&["install", "dranet", "."])).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be imported into the current release"));
    helm.run(with_values(&["install", "dranet", ".", "--take-ownership", "--force-conflicts"]))
        .await?;
    // kubectl still owns the fields that it has applied.
    let log = "--set=log.level=debug";
    let refused = helm.run(with_values(&["upgrade", "dranet", ".", log])).await.unwrap_err();
    assert!(refused.to_string().contains("conflict with \"kubectl\""), "{refused}");
    helm.run(with_values(&["upgrade", "dranet", ".", log, "--force-conflicts"])).await?;
    let drivers: Api<DaemonSet> = Api::namespaced(plane.client(), NAMESPACE);
    let driver = serde_json::to_value(drivers.get("node-driver").await?.spec)?;
    let container = &driver["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.org/dranet/node-driver:0.1.0");
    assert!(container["args"].as_array().unwrap().contains(&json!("--log=debug")), "{container}");

    helm.run(["uninstall", "dranet", IN_NAMESPACE, "--no-hooks", "--wait"]).await?;
    remove_namespace(&plane.client()).await?;
    let after = objects(&plane.client()).await?;
    assert!(applied.len() > before.len() + 20, "little was applied");
    let left: Vec<_> = after.difference(&before).collect();
    assert_eq!(left, Vec::<&String>::new(), "left");
    Ok(())
}

async fn has_new_field(client: &Client) -> anyhow::Result<bool> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = definitions.get("nodetopologies.topology.dranet.io").await?;
    let schema = serde_json::to_value(&definition.spec.versions[0].schema)?;
    Ok(!schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["next"].is_null())
}

/// Creates pods, one after the other, until that is done. Returns their number. Each must be
/// admitted.
async fn meanwhile(
    scope: &Scope,
    round: usize,
    done: impl Future<Output = anyhow::Result<String>>,
) -> anyhow::Result<usize> {
    // No request is dropped halfway, since its object would stay.
    let is_done = Cell::new(false);
    let command = async {
        let said = done.await;
        is_done.set(true);
        said
    };
    let pods = async {
        let mut pods = 0;
        while !is_done.get() {
            let name = format!("during-{round}-{pods}");
            create(scope, &name).await?;
            scope.delete_pod(&name).await?;
            pods += 1;
        }
        Ok(pods)
    };
    let (said, pods) = tokio::join!(command, pods);
    said.and(pods)
}

/// The allocations of the pods that have a node, by claim.
async fn allocations(scope: &Scope) -> anyhow::Result<BTreeSet<String>> {
    let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
    let allocated = claims.into_iter().filter_map(|claim| {
        let allocation = claim.status.as_ref()?.allocation.as_ref()?;
        Some(format!("{} {}", claim.name_any(), serde_json::to_string(allocation).ok()?))
    });
    Ok(allocated.collect())
}

/// Every object of the cluster, as KIND/NAMESPACE/NAME, and its labels and annotations of ours, except for objects that come and go by
/// themselves and those in the namespaces of tests.
async fn objects(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let discovered = Discovery::new(client.clone()).run().await?;
    for group in discovered.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let comes_and_goes =
                ["ComponentStatus", "EndpointSlice", "Endpoints", "Event", "Lease"];
            let is_listed = capabilities.supports_operation(verbs::LIST)
                && capabilities.supports_operation(verbs::DELETE);
            if !is_listed || comes_and_goes.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let listed = api.list_metadata(&ListParams::default()).await;
            // Its definition was deleted meanwhile.
            let Ok(listed) = listed else { continue };
            all.extend(listed.into_iter().flat_map(|object| {
                let namespace = match capabilities.scope {
                    Place::Namespaced => object.namespace().unwrap_or_default(),
                    Place::Cluster => String::new(),
                };
                let name = format!("{}/{namespace}/{}", resource.kind, object.name_any());
                let words = object.labels().iter().chain(object.annotations());
                let ours = words.filter(|(key, _)| key.contains("dranet.io/"));
                let ours = ours.map(|(key, value)| format!("{name} {key}={value}"));
                ours.chain([name.clone()]).collect::<Vec<_>>()
            }));
        }
    }
    all.retain(|object| !object.contains("/test-"));
    Ok(all)
}

/// Runs the commands of the chart's Job, with the permissions of its service account.
async fn run_cleanup(plane: &ControlPlane, installation: &Installation<'_>) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let of_job = ListParams::default().labels("job-name=dranet-cleanup");
    let pod = eventually(SOON, async || {
        let pod = pods.list(&of_job).await?.items.into_iter().next();
        Ok(pod.map_or_else(|| Check::NotYet("the Job has no pod".into()), Check::Done))
    })
    .await?;
    let spec = pod.spec.clone().context("a pod has a spec")?;
    let account = spec.service_account_name.context("it has an account")?;
    let kubeconfig = installation.kubeconfig(&account).await?;
    for container in spec.init_containers.into_iter().flatten().chain(spec.containers) {
        let command = container.command.context("it has a command")?;
        let program = Program::new(binaries::kubernetes(&command[0])?, plane.logs());
        program
            .named(&format!("cleanup-{}", container.name))
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            .args(command[1..].iter().cloned())
            .spawn()?
            .wait_for_success(SOON)
            .await?;
    }
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await?;
    Ok(())
}

async fn none_left<K>(api: Api<K>) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually(SOON, async || {
        let left = api.list(&ListParams::default()).await?.items;
        Ok(Check::that(left.is_empty(), || format!("left: {left:#?}")))
    })
    .await
}

async fn label(client: &Client, node: &str, key: &str, value: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes the chart's namespace, and waits until it is gone.
pub(super) async fn remove_namespace(client: &Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    eventually(SOON, async || {
        let there = namespaces.get_opt(NAMESPACE).await?;
        Ok(Check::that(there.is_none(), || format!("{:?}", there.map(|it| it.status))))
    })
    .await
}

/// Deletes what another test has installed without helm.
pub(super) async fn remove_all(client: &Client) -> anyhow::Result<()> {
    if Api::<Namespace>::all(client.clone()).get_opt(NAMESPACE).await?.is_some() {
        remove_namespace(client).await?;
    }
    let discovered = Discovery::new(client.clone()).run().await?;
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=dranet");
    for group in discovered.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let can = capabilities.supports_operation(verbs::DELETE_COLLECTION);
            if can && capabilities.scope == Place::Cluster {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                match api.delete_collection(&DeleteParams::default(), &ours).await {
                    // Its definition was deleted meanwhile.
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                }
            }
        }
    }
    Ok(())
}

/// A pod with a GPU and its NIC.
async fn create(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let pod: Value = json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": "1"}},
        "spec": {"containers": [{
            "name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]},
    });
    let pod: Pod = serde_json::from_value(pod)?;
    scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
    Ok(())
}
