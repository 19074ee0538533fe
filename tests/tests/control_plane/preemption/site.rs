//! Nodes that are full, a kubelet that ends pods, and what is seen of preemption.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    events::v1::Event,
    policy::v1::PodDisruptionBudget,
    resource::v1::{DeviceTaintRule, ResourceClaim},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, SchedulerConfig, Scope, allocation::allocations, eventually,
    installation::Installation, with_scope,
};

pub(super) const SOON: Duration = Duration::from_mins(2);
/// The GPUs of a node, each with its NIC.
pub(super) const GPUS: usize = 4;
/// The interval at which the kubelet looks at pods.
const PERIOD: Duration = Duration::from_millis(100);
/// The label of DeviceTaintRules of preemptor.
const LABEL: &str = "dranet.io/preemption";
/// The GPUs of a NUMA node.
const PER_NUMA_NODE: usize = 2;
/// Partners: the GPU and the NIC of an index share a switch.
const PARTNERS: [(&str, &str); GPUS] = [
    ("gpu-0", "pci-0101-00-00-0"),
    ("gpu-1", "pci-0102-00-00-0"),
    ("gpu-2", "pci-0103-00-00-0"),
    ("gpu-3", "pci-0104-00-00-0"),
];

/// The PriorityClasses of the pods here.
const CLASSES: &str = "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: middle}
value: 500
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
";

/// Runs a test on this number of nodes of one fabric, with admission and fabric-controller, beside a
/// kubelet that ends evicted pods.
pub(super) async fn with_nodes(
    plane: Arc<ControlPlane>,
    nodes: usize,
    test: impl AsyncFnOnce(&Scope, &mut Installation<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut scheduler = SchedulerConfig::default();
    scheduler.more.insert("podMaxBackoffSeconds".into(), json!(1));
    plane.restart_scheduler(&scheduler).await?;
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let first = installation.gb300("n0").await?;
        for node in 1..nodes {
            installation.add_copy(&first, &format!("n{node}")).await?;
        }
        scope.apply_yaml(CLASSES).await?;
        installation.start_replicas(1, &["--fabric-controller"]).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        let outcome = tokio::select! {
            outcome = test(scope, &mut installation) => outcome,
            failed = play_kubelet(scope) => failed.context("the kubelet"),
        };
        // What a failed test leaves would keep devices from the next one.
        installation.start_preemptors(0, &[]).await?;
        let rules: Api<DeviceTaintRule> = Api::all(scope.client());
        let ours = ListParams::default().labels(LABEL);
        rules.delete_collection(&DeleteParams::default(), &ours).await?;
        outcome
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

/// Starts bound pods, and ends those that are deleted.
async fn play_kubelet(scope: &Scope) -> anyhow::Result<()> {
    let running = Patch::Strategic(json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }}));
    loop {
        for pod in scope.api::<Pod>().list(&ListParams::default()).await? {
            let name = pod.name_any();
            let is_running =
                pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running");
            if node(&pod).is_none() {
                continue;
            }
            if pod.metadata.deletion_timestamp.is_some() {
                scope.delete_pod(&name).await?;
            } else if !is_running {
                let params = PatchParams::default();
                let patched = scope.api::<Pod>().patch_status(&name, &params, &running).await;
                if let Err(error) = patched
                    && !matches!(&error, kube::Error::Api(status) if status.code == 404)
                {
                    return Err(error.into());
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// A pod with this number of GPUs, each with its NIC.
pub(super) fn pod(name: &str, class: Option<&str>, gpus: usize) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {"class": class.unwrap_or("low")},
            "annotations": {"dranet.io/aligned-nics": "per-gpu"},
        },
        "spec": {
            "priorityClassName": class,
            "containers": [{
                "name": "nccl",
                "image": "nccl",
                "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
            }],
        },
    })
}

pub(super) async fn create(scope: &Scope, pod: Value) -> anyhow::Result<()> {
    scope.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// Fills nodes with pods of one GPU of no class, and waits until they run. Returns their names.
pub(super) async fn fill(scope: &Scope, nodes: usize) -> anyhow::Result<BTreeSet<String>> {
    let names: BTreeSet<String> = (0..nodes * GPUS).map(|index| format!("low-{index}")).collect();
    for name in &names {
        create(scope, pod(name, None, 1)).await?;
    }
    for name in &names {
        scope.bound(name, SOON).await?;
    }
    run(scope, names.len()).await?;
    Ok(names)
}

/// Waits until this number of pods runs.
pub(super) async fn run(scope: &Scope, count: usize) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let running = ListParams::default().fields("status.phase=Running");
        let running = scope.api::<Pod>().list(&running).await?.items.len();
        Ok(Check::that(running == count, || format!("{running} of {count} pods run")))
    })
    .await
}

pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The names of the pods that exist.
pub(super) async fn names(scope: &Scope) -> anyhow::Result<BTreeSet<String>> {
    let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
    Ok(pods.iter().map(ResourceExt::name_any).collect())
}

/// The DeviceTaintRules of preemptor.
pub(super) async fn rules(scope: &Scope) -> anyhow::Result<Vec<DeviceTaintRule>> {
    let rules: Api<DeviceTaintRule> = Api::all(scope.client());
    Ok(rules.list(&ListParams::default().labels(LABEL)).await?.items)
}

/// Waits until no device is kept.
pub(super) async fn nothing_kept(scope: &Scope) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let left = rules(scope).await?.len();
        Ok(Check::that(left == 0, || format!("{left} devices are kept")))
    })
    .await
}

/// Fails unless a pod has this number of GPUs on its node, and as many NICs as GPUs of each NUMA node:
/// that is what its plan promises.
pub(super) async fn is_aligned(scope: &Scope, pod: &str, gpus: usize) -> anyhow::Result<()> {
    let object = scope.api::<Pod>().get(pod).await?;
    let node = node(&object).context("it has no node")?;
    let all = allocations(scope.client(), scope.namespace()).await?;
    let (_, devices) = all.iter().find(|(of, _)| of == pod).context("it has no devices")?;
    let has = |name: &str| usize::from(devices.iter().any(|device| device.name == name));
    let is_balanced = |numa: &[(&str, &str)]| {
        let gpus: usize = numa.iter().map(|(gpu, _)| has(gpu)).sum();
        let nics: usize = numa.iter().map(|(_, nic)| has(nic)).sum();
        gpus == nics
    };
    let is_aligned = PARTNERS.chunks(PER_NUMA_NODE).all(is_balanced)
        && PARTNERS.iter().map(|(gpu, _)| has(gpu)).sum::<usize>() == gpus
        && devices.len() == 2 * gpus
        && devices.iter().all(|device| device.node == node);
    anyhow::ensure!(is_aligned, "{pod} on {node} has {devices:?}");
    Ok(())
}

/// The notes of events with this reason, by the pods that they are about.
pub(super) async fn events(
    scope: &Scope,
    reason: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let events = scope.api::<Event>().list(&ListParams::default()).await?.items;
    let of_reason = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    let about = |event: Event| Some((event.regarding?.name?, event.note.unwrap_or_default()));
    Ok(of_reason.filter_map(about).collect())
}

/// Waits for an event with this reason about a pod. Returns its note.
pub(super) async fn event(scope: &Scope, pod: &str, reason: &str) -> anyhow::Result<String> {
    eventually(SOON, async || {
        let all = events(scope, reason).await?;
        Ok(match all.get(pod) {
            Some(note) => Check::Done(note.clone()),
            None => Check::NotYet(format!("{reason}: {all:?}")),
        })
    })
    .await
}

/// A counter of the only replica of preemptor; 0 if it has none.
pub(super) async fn metric(installation: &Installation<'_>, name: &str) -> anyhow::Result<u64> {
    let [replica] = installation.preemptors() else { anyhow::bail!("not one replica") };
    let metrics = replica.metrics().await?;
    let own = metrics.iter().filter(|(key, _)| key.starts_with(name));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a count")]
    Ok(own.map(|(_, value)| *value as u64).sum())
}

/// Removes all pods, events and the budget of a scenario.
pub(super) async fn clear(scope: &Scope) -> anyhow::Result<()> {
    let now = DeleteParams::default().grace_period(0);
    let all = ListParams::default();
    scope.api::<Pod>().delete_collection(&now, &all).await?;
    scope.api::<PodDisruptionBudget>().delete_collection(&now, &all).await?;
    scope.api::<Event>().delete_collection(&now, &all).await?;
    eventually(SOON, async || {
        let left = scope.api::<ResourceClaim>().list(&all).await?.items.len();
        Ok(Check::that(left == 0, || format!("{left} claims are left")))
    })
    .await
}

#[expect(clippy::print_stderr, reason = "the numbers are reported")]
pub(super) fn report(line: &str) {
    eprintln!("{line}");
}
