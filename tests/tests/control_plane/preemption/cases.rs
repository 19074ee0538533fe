//! One behaviour each.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
    sync::Arc,
};

use anyhow::Context;
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
    resource::v1::ResourceClaim,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, binaries, eventually, installation::Installation};

use super::site::{
    GPUS, SOON, create, event, fill, is_aligned, metric, names, node, nothing_kept, pod, rules,
    run, with_nodes,
};

/// The pods of the namespace without a pod that has left: exactly one.
async fn one_has_left(scope: &Scope, low: &BTreeSet<String>) -> anyhow::Result<String> {
    let there = names(scope).await?;
    let left: Vec<&String> = low.difference(&there).collect();
    let [left] = left[..] else { anyhow::bail!("{left:?} have left") };
    Ok(left.clone())
}

pub(super) async fn a_pod_gets_the_devices_of_one_pod_of_lower_priority(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 2, async |scope, installation| {
        let low = fill(scope, 2).await?;
        create(scope, pod("high", Some("high"), 1)).await?;
        // kube-scheduler alone evicts nobody.
        let reason = scope.unschedulable("high", SOON).await?;
        assert!(reason.contains("cannot allocate all claims"), "{reason}");
        assert_eq!(names(scope).await?.len(), low.len() + 1);

        installation.start_preemptors(1, &[]).await?;
        scope.bound("high", SOON).await?;
        nothing_kept(scope).await?;
        is_aligned(scope, "high", 1).await?;
        let victim = one_has_left(scope, &low).await?;
        let note = event(scope, "high", "Preempts").await?;
        assert!(note.starts_with(&format!("evicts {}/{victim} for ", scope.namespace())), "{note}");
        let note = event(scope, &victim, "Preempted").await?;
        assert!(note.contains("/high of priority 1000"), "{note}");
        event(scope, "high", "PreemptionBound").await?;
        assert_eq!(metric(installation, "dranet_preemptions_total").await?, 1);
        assert_eq!(metric(installation, "dranet_preemption_victims_total").await?, 1);
        assert_eq!(metric(installation, "dranet_evicted_without_bound_pod_total").await?, 0);
        // A pod without a class has the lowest priority: nobody leaves for it.
        create(scope, pod("late", None, 1)).await?;
        scope.unschedulable("late", SOON).await?;
        assert_eq!(rules(scope).await?.len(), 0);
        Ok(())
    })
    .await
}

pub(super) async fn nobody_is_evicted_in_a_dry_run(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        let low = fill(scope, 1).await?;
        installation.start_preemptors(1, &["--dry-run"]).await?;
        create(scope, pod("high", Some("high"), 1)).await?;
        let note = event(scope, "high", "WouldPreempt").await?;
        assert!(
            note.starts_with("would evict ") && note.contains("gpu-") && note.contains("pci-"),
            "{note}"
        );
        assert_eq!(names(scope).await?.len(), low.len() + 1);
        assert_eq!(rules(scope).await?.len(), 0);
        Ok(())
    })
    .await
}

/// The only pods of lower priority have a budget that allows no disruption.
pub(super) async fn pods_of_a_budget_are_not_evicted(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        let low = fill(scope, 1).await?;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "all"},
            "spec": {"minAvailable": 4, "selector": {"matchLabels": {"class": "low"}}},
        }))?;
        let budgets: Api<PodDisruptionBudget> = scope.api();
        budgets.create(&PostParams::default(), &budget).await?;
        eventually(SOON, async || {
            let status = budgets.get("all").await?.status.unwrap_or_default();
            let healthy = status.current_healthy.unwrap_or_default();
            Ok(Check::that(healthy == 4, || format!("{healthy} of 4 are healthy")))
        })
        .await?;
        installation.start_preemptors(1, &[]).await?;
        create(scope, pod("high", Some("high"), 1)).await?;
        let note = event(scope, "high", "BudgetForbids").await?;
        assert!(note.contains(&format!("{}/all", scope.namespace())), "{note}");
        assert_eq!(names(scope).await?.len(), low.len() + 1);
        // One may leave now.
        let one = Patch::Merge(json!({"spec": {"minAvailable": 3}}));
        budgets.patch("all", &PatchParams::default(), &one).await?;
        scope.bound("high", SOON).await?;
        nothing_kept(scope).await?;
        one_has_left(scope, &low).await.map(drop)
    })
    .await
}

/// A budget that counts the victims only after the decision: nobody leaves, and nothing waits for it.
pub(super) async fn a_budget_that_comes_later_is_kept(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        let low = fill(scope, 1).await?;
        installation.start_preemptors(1, &["--settle-seconds=600"]).await?;
        create(scope, pod("high", Some("high"), 1)).await?;
        event(scope, "high", "Preempts").await?;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "late"},
            "spec": {"minAvailable": 4, "selector": {"matchLabels": {"class": "low"}}},
        }))?;
        scope.api::<PodDisruptionBudget>().create(&PostParams::default(), &budget).await?;
        let note = event(scope, "high", "PreemptionStopped").await?;
        let expected = format!("PodDisruptionBudget {}/late", scope.namespace());
        assert!(note.contains("before anyone was evicted") && note.contains(&expected), "{note}");
        nothing_kept(scope).await?;
        event(scope, "high", "BudgetForbids").await?;
        assert_eq!(names(scope).await?.len(), low.len() + 1);
        Ok(())
    })
    .await
}

/// Pods on the other node are of a lower class, but the volume is not there.
pub(super) async fn victims_are_where_the_volume_is(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 2, async |scope, installation| {
        Box::pin(leave_at_the_volume(scope, installation)).await
    })
    .await
}

async fn leave_at_the_volume(
    scope: &Scope,
    installation: &mut Installation<'_>,
) -> anyhow::Result<()> {
    let [first, second] = two_nodes(scope).await?;
    let mut near = BTreeSet::new();
    for index in 0..GPUS {
        let (low, middle) = (format!("low-{index}"), format!("middle-{index}"));
        create(scope, pinned(pod(&low, None, 1), &first)).await?;
        create(scope, pinned(pod(&middle, Some("middle"), 1), &second)).await?;
        near.insert(middle);
    }
    run(scope, 2 * GPUS).await?;
    scope.apply_yaml(&volume_on(&second)).await?;
    installation.start_preemptors(1, &[]).await?;
    let mut high = pod("high", Some("high"), 1);
    high["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(scope, high).await?;
    let bound = scope.bound("high", SOON).await?;
    assert_eq!(node(&bound), Some(second.as_str()));
    is_aligned(scope, "high", 1).await?;
    nothing_kept(scope).await?;
    one_has_left(scope, &near).await?;
    assert_eq!(names(scope).await?.len(), 2 * GPUS, "nobody else has left");
    assert_eq!(metric(installation, "dranet_evicted_without_bound_pod_total").await?, 0);
    Ok(())
}

/// A volume on a disk of this node, and the claim that has it.
fn volume_on(node: &str) -> String {
    format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: tests-on-{node}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: tests-local
  local: {{path: /none}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  annotations: {{pv.kubernetes.io/bind-completed: \"yes\"}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: tests-local
  volumeName: tests-on-{node}
  resources: {{requests: {{storage: 1Gi}}}}
"
    )
}

/// A claim that two requests of a user make, without admission.
pub(super) async fn hand_written_claims_preempt_too(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        let low = fill(scope, 1).await?;
        installation.start_preemptors(1, &[]).await?;
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": {"name": "own"},
            "spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            ]}},
        }))?;
        scope.api::<ResourceClaim>().create(&PostParams::default(), &claim).await?;
        create(
            scope,
            json!({
                "metadata": {"name": "high"},
                "spec": {
                    "priorityClassName": "high",
                    "resourceClaims": [{"name": "own", "resourceClaimName": "own"}],
                    "containers": [{
                        "name": "c", "image": "none", "resources": {"claims": [{"name": "own"}]},
                    }],
                },
            }),
        )
        .await?;
        scope.bound("high", SOON).await?;
        nothing_kept(scope).await?;
        one_has_left(scope, &low).await.map(drop)
    })
    .await
}

/// Two pods that take a whole node each.
pub(super) async fn a_gang_gets_room_together_or_not_at_all(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 2, async |scope, installation| {
        let low = fill(scope, 2).await?;
        installation.start_preemptors(1, &[]).await?;
        // Three pods fit on no two nodes.
        gang(scope, "large", 3).await?;
        event(scope, "large-0", "DoesNotHelp").await?;
        assert!(low.is_subset(&names(scope).await?));
        for index in 0..3 {
            scope.delete_pod(&format!("large-{index}")).await?;
        }
        gang(scope, "train", 2).await?;
        let mut nodes = BTreeSet::new();
        for name in ["train-0", "train-1"] {
            let bound = scope.bound(name, SOON).await?;
            nodes.insert(node(&bound).context("it is bound")?.to_owned());
            is_aligned(scope, name, GPUS).await?;
        }
        assert_eq!(nodes.len(), 2);
        nothing_kept(scope).await?;
        assert_eq!(names(scope).await?.len(), 2, "all others had to leave");
        assert_eq!(metric(installation, "dranet_evicted_without_bound_pod_total").await?, 0);
        Ok(())
    })
    .await
}

async fn gang(scope: &Scope, name: &str, size: usize) -> anyhow::Result<()> {
    for index in 0..size {
        let mut pod = pod(&format!("{name}-{index}"), Some("high"), GPUS);
        pod["metadata"]["annotations"]["dranet.io/fabric"] = name.into();
        pod["metadata"]["annotations"]["dranet.io/fabric-size"] = size.to_string().into();
        create(scope, pod).await?;
    }
    Ok(())
}

/// Nobody else wants the devices here, so the pod gets them.
pub(super) async fn devices_that_are_only_kept_by_rules_are_released(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        fill(scope, 1).await?;
        installation.start_preemptors(1, &["--keep=rules"]).await?;
        create(scope, pod("high", Some("high"), 1)).await?;
        scope.bound("high", SOON).await?;
        is_aligned(scope, "high", 1).await?;
        nothing_kept(scope).await?;
        event(scope, "high", "PreemptionReleased").await?;
        bound_later(installation).await
    })
    .await
}

async fn bound_later(installation: &Installation<'_>) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let count = metric(installation, "dranet_preemptions_total{result=\"BoundLater\"}").await?;
        Ok(Check::that(count == 1, || format!("{count} are bound")))
    })
    .await
}

/// A node has room for two GPUs, another for four as soon as a pod that may move has moved.
pub(super) async fn a_pod_that_may_move_makes_room(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let kubeconfig = plane.kubeconfig().display().to_string();
    with_nodes(plane, 2, async |scope, _| Box::pin(makes_room(scope, &kubeconfig)).await).await
}

/// The same by the controller, which is off by default.
pub(super) async fn preemptor_moves_pods_if_it_is_allowed_to(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 2, async |scope, installation| {
        Box::pin(moves_if_allowed(scope, installation)).await
    })
    .await
}

async fn moves_if_allowed(
    scope: &Scope,
    installation: &mut Installation<'_>,
) -> anyhow::Result<()> {
    let [_, second] = crowded(scope).await?;
    installation.start_preemptors(1, &["--moves-per-hour=1"]).await?;
    scope.bound("waits", SOON).await?;
    is_aligned(scope, "waits", GPUS).await?;
    let waits = scope.api::<Pod>().get("waits").await?;
    assert_eq!(node(&waits), Some(second.as_str()));
    let note = event(scope, "waits", "Moves").await?;
    assert!(note.contains("/moves-"), "{note}");
    nothing_kept(scope).await?;
    run(scope, 3).await?;
    assert_eq!(metric(installation, "dranet_moves_total").await?, 1);
    assert_eq!(metric(installation, "dranet_evicted_without_bound_pod_total").await?, 0);
    Ok(())
}

/// Two nodes, each with a pod of two GPUs, of which the one on the second may move, and a pod that waits for
/// a whole node. Returns the nodes.
async fn crowded(scope: &Scope) -> anyhow::Result<[String; 2]> {
    let [first, second] = two_nodes(scope).await?;
    for name in ["stays", "ends"] {
        create(scope, pinned(pod(name, None, 2), &first)).await?;
        scope.bound(name, SOON).await?;
    }
    let mut template = pod("", None, 2);
    template["metadata"]["labels"] = json!({"app": "moves"});
    template["metadata"]["annotations"]["dranet.io/movable"] = "true".into();
    // The pod that takes the place of the one that is evicted would go back.
    template["spec"]["affinity"] = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [&second]},
            ],
        }}],
    }});
    let moves: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "moves"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "moves"}}, "template": template,
        },
    }))?;
    scope.api::<ReplicaSet>().create(&PostParams::default(), &moves).await?;
    run(scope, 3).await?;
    scope.delete_pod("ends").await?;
    run(scope, 2).await?;
    create(scope, pod("waits", None, GPUS)).await?;
    scope.unschedulable("waits", SOON).await?;
    Ok([first, second])
}

/// The names of the only two nodes.
async fn two_nodes(scope: &Scope) -> anyhow::Result<[String; 2]> {
    let nodes: Api<Node> = Api::all(scope.client());
    let nodes = nodes.list(&ListParams::default()).await?;
    let nodes: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    <[String; 2]>::try_from(nodes).map_err(|nodes| anyhow::anyhow!("{nodes:?} are not two nodes"))
}

/// The pod, for this node only.
fn pinned(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    pod
}

async fn makes_room(scope: &Scope, kubeconfig: &str) -> anyhow::Result<()> {
    let [first, second] = crowded(scope).await?;
    let namespace = scope.namespace().to_owned();
    let defrag = async |more: &[&str]| -> anyhow::Result<Output> {
        let mut command = Command::new(binaries::ours("kubectl-dranet")?);
        command.args(["defrag", "pod/waits", "-n", &namespace, "--kubeconfig", kubeconfig]);
        command.args(more);
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    };
    let planned = defrag(&[]).await?;
    let said = String::from_utf8(planned.stdout)?;
    assert!(said.contains("moves-") && said.contains(first.as_str()), "{said}");
    assert_eq!(names(scope).await?.len(), 3, "a plan moves nobody");
    let applied = defrag(&["--apply"]).await?;
    let said = String::from_utf8(applied.stdout)? + &String::from_utf8(applied.stderr)?;
    assert!(applied.status.success(), "{said}");
    assert!(said.contains(&format!("to {first}: it is pod moves-")), "{said}");
    scope.bound("waits", SOON).await?;
    is_aligned(scope, "waits", GPUS).await?;
    let waits = scope.api::<Pod>().get("waits").await?;
    assert_eq!(node(&waits), Some(second.as_str()));
    Ok(())
}
