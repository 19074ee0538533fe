//! Tests of gangs, one behaviour each.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, eventually, installation::Installation};

use super::site::{
    SOON, create, is_held, node, placed, pod, pods, says, template, waits, with_fabrics,
};

pub(super) fn job(name: &str, pods: usize, whole_node: bool) -> Job {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": template("same", whole_node),
        },
    }))
    .unwrap()
}

pub(super) async fn run(scope: &Scope, job: &Job) -> anyhow::Result<String> {
    scope.api::<Job>().create(&PostParams::default(), job).await?;
    Ok(format!("batch.kubernetes.io/job-name={}", job.name_any()))
}

pub(super) async fn end(scope: &Scope, job: &str) -> anyhow::Result<()> {
    let now = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default().grace_period(0)
    };
    scope.api::<Job>().delete(job, &now).await?;
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let of_job = ListParams::default().labels(&labels);
    scope.api::<Pod>().delete_collection(&DeleteParams::default().grace_period(0), &of_job).await?;
    eventually(SOON, async || {
        let left = pods(scope, &labels).await?.len();
        Ok(Check::that(left == 0, || format!("{left} pods of {job} are left")))
    })
    .await
}

/// With required pod affinity, each would get a part of one fabric and wait forever.
pub(super) async fn two_gangs_on_two_fabrics_both_run(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 2), 1, &[], async |scope, installation| {
        let (one, two) = (job("one", 2, true), job("two", 2, true));
        let (one, two) = tokio::try_join!(run(scope, &one), run(scope, &two))?;
        let (one, two) = (placed(scope, &one, 2).await?, placed(scope, &two, 2).await?);
        assert_ne!(one, two, "each has a fabric to itself");
        // A third gang waits as a whole and reports the reason. It runs when another one ends.
        let third = run(scope, &job("three", 2, true)).await?;
        let message = waits(scope, &third, 2, "NoRoom").await?;
        assert!(message.contains("0 of 2 pods fit on group-"), "{message}");
        event(scope, "NoRoom").await?;
        measured(installation, r#"groups_waiting{reason="NoRoom"}"#, 1.0).await?;
        end(scope, "one").await?;
        assert_eq!(placed(scope, &third, 2).await?, one);
        event(scope, "FabricChosen").await?;
        let message = says(scope, &third, 2, "FabricChosen").await?;
        assert_eq!(message, format!("the group is on fabric {one}"));
        for (name, value) in [
            (r#"groups_waiting{reason="NoRoom"}"#, 0.0),
            (r#"placements_total{outcome="Whole"}"#, 3.0),
            ("gates_removed_total", 6.0),
            ("group_wait_seconds_count", 3.0),
            ("splits_prevented_total", 0.0),
        ] {
            measured(installation, name, value).await?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn a_gang_that_fits_nowhere_waits_as_a_whole(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 2), 1, &[], async |scope, _| {
        // A pod with another gate, which is not one of ours and is left alone.
        let other = json!({
            "metadata": {"name": "other", "labels": {"dranet.io/fabric-group": "x"}},
            "spec": {
                "schedulingGates": [{"name": "tests/held"}, {"name": "dranet.io/fabric"}],
                "containers": [{"name": "c", "image": "none"}],
            },
        });
        create(scope, &serde_json::from_value(other)?).await?;
        let before = scope.api::<Pod>().get("other").await?;
        let three = run(scope, &job("three", 3, true)).await?;
        let message = waits(scope, &three, 3, "TooLarge").await?;
        assert!(message.contains("needs 3 places"), "{message}");
        // Other gates of a group must be removed first, since their controllers may decide where it
        // runs.
        for name in ["a", "b"] {
            let mut pod = serde_json::to_value(pod(name, "gated", 2, true))?;
            pod["metadata"]["labels"] = json!({"gang": "gated"});
            pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
            create(scope, &serde_json::from_value(pod)?).await?;
        }
        waits(scope, "gang=gated", 2, "OtherGates").await?;
        for name in ["a", "b"] {
            let admitted = Patch::Strategic(json!({"spec": {"schedulingGates": [
                {"name": "kueue.x-k8s.io/admission", "$patch": "delete"},
            ]}}));
            scope.api::<Pod>().patch(name, &PatchParams::default(), &admitted).await?;
        }
        placed(scope, "gang=gated", 2).await?;
        // No pod of the large gang was released.
        let held = pods(scope, &three).await?;
        assert!(held.len() == 3 && held.iter().all(is_held), "{held:?}");
        let after = scope.api::<Pod>().get("other").await?;
        assert_eq!(before.spec, after.spec);
        assert_eq!(before.metadata.annotations, after.metadata.annotations);
        Ok(())
    })
    .await
}

pub(super) async fn recreated_pods_join_the_rest_of_their_gang(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 2), 1, &["--full-fabric=evict"], async |scope, installation| {
        installation.apply_component("fabric-evict").await?;
        let labels = run(scope, &job("train", 2, true)).await?;
        let fabric = placed(scope, &labels, 2).await?;
        // One pod is evicted. The Job recreates it, and it joins the other one.
        let first = pods(scope, &labels).await?.first().context("it has pods")?.name_any();
        scope.delete_pod(&first).await?;
        let again = async || {
            let names: Vec<_> =
                pods(scope, &labels).await?.iter().map(ResourceExt::name_any).collect();
            let is_new = names.len() == 2 && !names.contains(&first);
            Ok(Check::that(is_new, || format!("{names:?}")))
        };
        eventually(SOON, again).await?;
        assert_eq!(placed(scope, &labels, 2).await?, fabric);
        // Its node is cordoned and it is evicted again. There is no room now, so all pods move.
        let pod = pods(scope, &labels).await?.into_iter().next().context("it has pods")?;
        let cordoned = node(&pod).context("it has a node")?.to_owned();
        let nodes: Api<Node> = Api::all(scope.client());
        nodes.cordon(&cordoned).await?;
        scope.delete_pod(&pod.name_any()).await?;
        eventually(SOON, async || {
            // There is no kubelet to end evicted pods.
            for pod in pods(scope, &labels).await? {
                if pod.metadata.deletion_timestamp.is_some() {
                    scope.delete_pod(&pod.name_any()).await?;
                }
            }
            let fabrics = super::site::fabrics(scope).await?;
            let pods = pods(scope, &labels).await?;
            let bound = pods.iter().filter_map(node).filter_map(|node| fabrics.get(node));
            let there = bound.filter(|now| **now != fabric).count();
            Ok(Check::that(there == 2, || format!("{there} of 2 have moved")))
        })
        .await
    })
    .await
}

/// Uses real controllers where they run here, otherwise pods with the labels and owners that the
/// controllers set.
pub(super) async fn every_controllers_pods_are_a_group(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 4), 1, &[], async |scope, _| {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "set"},
            "spec": {
                "replicas": 2, "serviceName": "set",
                "selector": {"matchLabels": {"app": "set"}},
                "template": set_template(),
            },
        }))?;
        scope.api::<StatefulSet>().create(&PostParams::default(), &set).await?;
        // The second pod is created when the first one is ready; its place is reserved.
        let fabric = placed(scope, "app=set", 1).await?;
        ready(scope, "set-0").await?;
        assert_eq!(placed(scope, "app=set", 2).await?, fabric);
        for (name, labels) in [
            ("jobset", json!({"jobset.sigs.k8s.io/jobset-name": "j"})),
            ("lws", json!({"leaderworkerset.sigs.k8s.io/group-key": "k"})),
            ("mpi", json!({"training.kubeflow.org/job-name": "m"})),
            ("podgroup", json!({"scheduling.x-k8s.io/pod-group": "p"})),
        ] {
            for index in 0..2 {
                create(scope, &of_controller(name, index, &labels)?).await?;
            }
            placed(scope, &format!("gang={name}"), 2).await?;
            scope
                .api::<Pod>()
                .delete_collection(
                    &DeleteParams::default().grace_period(0),
                    &ListParams::default().labels(&format!("gang={name}")),
                )
                .await?;
        }
        Ok(())
    })
    .await
}

fn set_template() -> Value {
    let mut template = template("same", true);
    template["metadata"]["labels"] = json!({"app": "set"});
    template["spec"]["restartPolicy"] = "Always".into();
    template
}

/// A pod as the controller of a job with several parts creates it, with its labels.
fn of_controller(name: &str, index: usize, labels: &Value) -> anyhow::Result<Pod> {
    let mut pod = serde_json::to_value(pod(&format!("{name}-{index}"), "same", 2, false))?;
    pod["metadata"]["labels"] = labels.clone();
    pod["metadata"]["labels"]["gang"] = name.into();
    Ok(serde_json::from_value(pod)?)
}

/// Marks a pod as ready, as its kubelet would.
async fn ready(scope: &Scope, pod: &str) -> anyhow::Result<()> {
    let status = Patch::Strategic(json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }}));
    scope.api::<Pod>().patch_status(pod, &PatchParams::default(), &status).await?;
    Ok(())
}

/// Waits until a metric of the only replica has this value.
async fn measured(
    installation: &Installation<'_>,
    name: &str,
    expected: f64,
) -> anyhow::Result<()> {
    let name = format!("dranet_fabric_controller_{name}");
    let replica = installation.fabric_controllers().first().context("a replica runs")?;
    eventually(SOON, async || {
        let value = replica.metrics().await?.get(&name).copied().unwrap_or_default();
        let is_there = value.total_cmp(&expected).is_eq();
        Ok(Check::that(is_there, || format!("{name} is {value}, not {expected}")))
    })
    .await
}

/// Waits for an event with this reason.
async fn event(scope: &Scope, reason: &str) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let events = scope.api::<Event>().list(&ListParams::default()).await?;
        let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
        let there = reasons.iter().any(|it| it == reason);
        Ok(Check::that(there, || format!("events {reasons:?}")))
    })
    .await
}
