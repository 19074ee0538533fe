//! Nodes on fabrics, gangs of pods, and the fabrics that they are on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, SchedulerConfig, Scope, eventually, installation::Installation, with_scope,
};

pub(super) const SOON: Duration = Duration::from_mins(2);
pub(super) const FABRIC: &str = "topology.dranet.io/fabric";
/// The flag that lets the scheduler place groups.
pub(super) const POD_GROUPS: &str = "--pod-groups";

/// Runs a test on this number of fabrics with this number of nodes each, with admission, replicas
/// of the fabric controller with these flags, and a scheduler with a short backoff.
pub(crate) async fn with_fabrics(
    plane: Arc<ControlPlane>,
    (fabrics, nodes): (usize, usize),
    replicas: usize,
    args: &[&str],
    test: impl AsyncFnOnce(&Scope, &mut Installation<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut scheduler = SchedulerConfig::default();
    scheduler.more.insert("podMaxBackoffSeconds".into(), json!(1));
    plane.restart_scheduler(&scheduler).await?;
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        for fabric in 0..fabrics {
            let first =
                installation.gb300_in(&format!("f{fabric}-n0"), &format!("group-{fabric}")).await?;
            for node in 1..nodes {
                installation.add_copy(&first, &format!("f{fabric}-n{node}")).await?;
            }
        }
        let mut admission = vec!["--fabric-controller"];
        if args.contains(&POD_GROUPS) {
            installation.apply_component("pod-groups").await?;
            admission.push(POD_GROUPS);
        }
        installation.start_replicas(1, &admission).await?;
        installation.start_fabric_controllers(replicas, args).await?;
        labelled(scope, fabrics * nodes).await?;
        test(scope, &mut installation).await
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

/// Waits until every node of the scope has the label of its fabric.
async fn labelled(scope: &Scope, count: usize) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let labelled = fabrics(scope).await?.len();
        Ok(Check::that(labelled == count, || format!("{labelled} of {count} nodes are labelled")))
    })
    .await
}

/// The fabric of each node of the scope.
pub(super) async fn fabrics(scope: &Scope) -> anyhow::Result<BTreeMap<String, String>> {
    let nodes: Api<Node> = Api::all(scope.client());
    let labelled = ListParams::default().labels(FABRIC);
    let of_scope = |node: &Node| node.name_any().ends_with(scope.namespace());
    let nodes = nodes.list(&labelled).await?.items.into_iter().filter(of_scope);
    Ok(nodes.map(|node| (node.name_any(), node.labels()[FABRIC].clone())).collect())
}

/// The template of a gang's pod: all four GPUs of a node, each with its NIC, or one of them.
pub(super) fn template(fabric: &str, whole_node: bool) -> Value {
    let gpus = if whole_node { "4" } else { "1" };
    json!({
        "metadata": {"annotations": {
            "dranet.io/aligned-nics": "per-gpu",
            "dranet.io/fabric": fabric,
        }},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "nccl",
            "image": "nccl",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }]},
    })
}

/// A pod of the group with this name and size.
pub(super) fn pod(name: &str, group: &str, size: usize, whole_node: bool) -> Pod {
    let mut pod = template(group, whole_node);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["annotations"]["dranet.io/fabric-size"] = size.to_string().into();
    serde_json::from_value(pod).unwrap()
}

pub(super) async fn create(scope: &Scope, pod: &Pod) -> anyhow::Result<()> {
    scope.api::<Pod>().create(&PostParams::default(), pod).await?;
    Ok(())
}

/// The pods of a gang, by label.
pub(super) async fn pods(scope: &Scope, labels: &str) -> anyhow::Result<Vec<Pod>> {
    Ok(scope.api::<Pod>().list(&ListParams::default().labels(labels)).await?.items)
}

/// Waits until this number of pods is bound. Returns their common fabric.
pub(super) async fn placed(scope: &Scope, labels: &str, count: usize) -> anyhow::Result<String> {
    let fabrics = fabrics(scope).await?;
    eventually(SOON, async || {
        let pods = pods(scope, labels).await?;
        let on = on_fabrics(&pods, &fabrics);
        assert!(on.len() <= 1, "split over {on:?}");
        let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
        match on.into_iter().next() {
            Some(fabric) if bound == count => Ok(Check::Done(fabric)),
            _ => Ok(Check::NotYet(format!("{bound} of {count} are bound: {}", state(&pods)))),
        }
    })
    .await
}

/// The fabrics that pods are on, or that their node affinity requires.
pub(super) fn on_fabrics(pods: &[Pod], fabrics: &BTreeMap<String, String>) -> BTreeSet<String> {
    let of = |pod: &Pod| match node(pod) {
        Some(node) => fabrics.get(node).cloned(),
        None => told(pod),
    };
    pods.iter().filter_map(of).collect()
}

/// The fabric that the node affinity of a released pod requires.
fn told(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let expressions = required.node_selector_terms.first()?.match_expressions.as_ref()?;
    let expression = expressions.iter().find(|expression| expression.key == FABRIC)?;
    expression.values.as_ref()?.first().cloned()
}

pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub(super) fn is_held(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == "dranet.io/fabric")
}

/// The reason and the message of the condition of a pod that waits for its fabric.
pub(super) fn condition(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|it| it.type_ == "dranet.io/FabricChosen")?;
    Some((condition.reason.clone()?, condition.message.clone()?))
}

/// Waits until all of this number of pods are held with this reason.
pub(super) async fn waits(
    scope: &Scope,
    labels: &str,
    count: usize,
    reason: &str,
) -> anyhow::Result<String> {
    all_say(scope, labels, count, reason, is_held).await
}

/// Waits until this number of pods has this reason.
pub(super) async fn says(
    scope: &Scope,
    labels: &str,
    count: usize,
    reason: &str,
) -> anyhow::Result<String> {
    all_say(scope, labels, count, reason, |_| true).await
}

async fn all_say(
    scope: &Scope,
    labels: &str,
    count: usize,
    reason: &str,
    counts: impl Fn(&Pod) -> bool,
) -> anyhow::Result<String> {
    eventually(SOON, async || {
        let pods = pods(scope, labels).await?;
        let reasons: Vec<_> = pods.iter().filter(|pod| counts(pod)).map(condition).collect();
        let says = |it: &&Option<(String, String)>| it.as_ref().is_some_and(|(is, _)| is == reason);
        match reasons.iter().filter(says).flatten().next() {
            Some((_, message)) if reasons.iter().filter(says).count() == count => {
                Ok(Check::Done(message.clone()))
            }
            _ => Ok(Check::NotYet(format!("{reasons:?}"))),
        }
    })
    .await
}

/// A summary of pods, as text for people.
fn state(pods: &[Pod]) -> String {
    let one = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let messages: Vec<_> = conditions.filter_map(|it| it.message.as_deref()).collect();
        format!(
            "{}: {:?}, held {}, {messages:?}",
            pod.name_any(),
            node(pod).map(str::to_owned).or_else(|| told(pod)),
            is_held(pod)
        )
    };
    pods.iter().map(one).collect::<Vec<_>>().join("; ")
}
