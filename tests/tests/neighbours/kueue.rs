//! Kueue: what it counts of each kind of workload, with and without an extended resource that counts the GPUs
//! of claims.

use std::{collections::BTreeSet, fmt::Write as _, slice, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    installation::Installation,
    kueue::{Claims, Kueue, version},
    suite::Test,
    with_last_scope,
};

use super::{
    kinds::{KINDS, Kind},
    outcome::{nodes, row},
};

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const COUNTED: &str = "example.org/aligned-gpus";
/// What Kueue calls NICs if it counts claims.
const NIC: &str = "example.org/nics";
pub(crate) const FABRIC: &str = "topology.dranet.io/fabric";
const SOON: Duration = Duration::from_mins(1);
/// The nodes of each of the two fabrics.
const NODES: usize = 10;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        kueue_counts_the_gpus_of_every_kind,
        kueue_does_not_see_claims,
        kueue_maps_device_classes,
    ]
}

async fn kueue_counts_the_gpus_of_every_kind(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let plane = &*plane;
    let rows = with_last_scope(plane.client(), async |scope| {
        let _installation = counted(plane, scope).await?;
        // Of Jobs and StatefulSets Kueue reads the templates, which keep their limits.
        let outputs = json!({ COUNTED: "1" });
        let as_counted = json!({"input": GPU, "strategy": "Replace", "outputs": outputs});
        let resources = json!({"transformations": [as_counted]});
        let _kueue = Kueue::start(plane, scope, &resources, Claims::Ignored).await?;
        let rows = outcomes(scope, "counted", COUNTED).await?;
        by_topology_on_one_fabric(scope).await?;
        Ok(rows)
    })
    .await?;
    insta::assert_snapshot!("with_a_counting_resource", rows);
    Ok(())
}

/// Where claims are not counted, pods and Deployments run beyond their quota, and no node has the GPUs that
/// topology-aware scheduling looks for.
async fn kueue_does_not_see_claims(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let rows = uncounted(&plane, "limits", &json!({}), Claims::Ignored).await?;
    insta::assert_snapshot!("without_a_counting_resource", rows);
    Ok(())
}

/// What Kueue itself makes of aligned claims, by a mapping of device classes. It differs by version.
async fn kueue_maps_device_classes(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let mapped = [(GPU, "gpu.nvidia.com"), (NIC, "dranet.net")];
    let mapped = mapped.map(|(name, class)| json!({"name": name, "deviceClassNames": [class]}));
    let resources = json!({ "deviceClassMappings": mapped });
    let rows = uncounted(&plane, "claims", &resources, Claims::Counted).await?;
    insta::assert_snapshot!(format!("by_mapping_device_classes_{}", version()?), rows);
    Ok(())
}

/// The table without a resource that counts the GPUs of claims.
async fn uncounted(
    plane: &ControlPlane,
    prefix: &str,
    resources: &Value,
    claims: Claims,
) -> anyhow::Result<String> {
    with_last_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(plane, scope).await?;
        with_nodes(&installation).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        labelled(scope).await?;
        installation.start_replicas(1, &["--fabric-controller", "--quota-escape=warn"]).await?;
        let _kueue = Kueue::start(plane, scope, resources, claims).await?;
        outcomes(scope, prefix, GPU).await
    })
    .await
}

/// An installation that counts the GPUs of claims, on two fabrics.
pub(crate) async fn counted<'a>(
    plane: &'a ControlPlane,
    scope: &'a Scope,
) -> anyhow::Result<Installation<'a>> {
    let mut installation = Installation::install(plane, scope).await?;
    with_nodes(&installation).await?;
    installation.start_fabric_controllers(1, &[]).await?;
    labelled(scope).await?;
    counting(scope).await?;
    let counted = format!("--counted=gpu.nvidia.com={COUNTED}");
    installation.start_replicas(1, &["--fabric-controller", &counted]).await?;
    Ok(installation)
}

/// Two fabrics of nodes with four GPUs each.
async fn with_nodes(installation: &Installation<'_>) -> anyhow::Result<()> {
    for fabric in ["a", "b"] {
        let first = installation.gb300_in(&format!("{fabric}-0"), fabric).await?;
        for index in 1..NODES {
            installation.add_copy(&first, &format!("{fabric}-{index}")).await?;
        }
    }
    Ok(())
}

/// Waits until the nodes have the labels of their fabrics.
async fn labelled(scope: &Scope) -> anyhow::Result<()> {
    let all: Api<Node> = Api::all(scope.client());
    eventually(SOON, async || {
        let labelled = all.list(&ListParams::default().labels(FABRIC)).await?.items.len();
        Ok(Check::that(labelled == 2 * NODES, || format!("{labelled} nodes are labelled")))
    })
    .await
}

/// Adds to the nodes what their kubelets say for node-driver (`a_kubelet_counts_gpus` of suite `node`).
async fn counting(scope: &Scope) -> anyhow::Result<()> {
    let all: Api<Node> = Api::all(scope.client());
    let amounts = json!({ COUNTED: "4" });
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
    for node in all.list(&ListParams::default()).await? {
        let patch = Patch::Merge(&status);
        all.patch_status(&node.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Creates each kind in a queue of its own, whose quota is on this resource, and returns the table of what
/// Kueue makes of them.
async fn outcomes(scope: &Scope, prefix: &str, resource: &str) -> anyhow::Result<String> {
    let mut table = String::new();
    // Topology-aware scheduling counts what other pods on a node use, some time after they have it.
    let (by_topology, others) = KINDS.split_first().context("there are kinds")?;
    for kinds in [slice::from_ref(by_topology), others] {
        for kind in kinds {
            let queue = format!("{prefix}-{}", kind.queue);
            for object in queues(&queue, resource, kind.queue == "topology") {
                scope.apply(serde_json::from_value(object)?).await?;
            }
            for object in (kind.objects)(&queue, resource) {
                scope.apply(serde_json::from_value(object)?).await?;
            }
        }
        for kind in kinds {
            let found = outcome(scope, kind, &format!("{prefix}-{}", kind.queue), resource).await;
            let found = found.with_context(|| format!("{}; so far:\n{table}", kind.name))?;
            writeln!(table, "{found}")?;
        }
        admitted_are_bound(scope).await?;
    }
    Ok(table)
}

/// Waits until no pod without gates is left without a node.
async fn admitted_are_bound(scope: &Scope) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
        let mut specs = pods.iter().filter_map(|pod| Some((pod.name_any(), pod.spec.as_ref()?)));
        let open = specs.find(|(_, spec)| {
            spec.node_name.is_none() && spec.scheduling_gates.iter().flatten().next().is_none()
        });
        Ok(Check::that(open.is_none(), || format!("{:?} has no node", open.map(|it| it.0))))
    })
    .await
}

/// The row of a kind, as soon as Kueue has looked at all of its workloads.
async fn outcome(
    scope: &Scope,
    kind: &Kind,
    queue: &str,
    resource: &str,
) -> anyhow::Result<String> {
    eventually(SOON, async || {
        Ok(match row(scope, (kind, queue), resource).await? {
            Ok(row) => Check::Done(row),
            Err(why) => Check::NotYet(why),
        })
    })
    .await
}

/// A queue with a quota of four of the resource, and enough of others; with a topology, on flavor `tas`.
fn queues(name: &str, resource: &str, has_topology: bool) -> [Value; 5] {
    let levels = [FABRIC, "kubernetes.io/hostname"].map(|label| json!({"nodeLabel": label}));
    let quotas = [("cpu", "100"), ("memory", "1Ti"), (NIC, "100"), (resource, "4")];
    let covered = quotas.map(|(name, _)| name);
    let quotas = quotas.map(|(name, quota)| json!({"name": name, "nominalQuota": quota}));
    let flavor = if has_topology { "tas" } else { "gb300" };
    let by_topology = json!({"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "net"});
    [
        object("Topology", "net", &json!({ "levels": levels })),
        object("ResourceFlavor", "gb300", &json!({})),
        object("ResourceFlavor", "tas", &by_topology),
        object(
            "ClusterQueue",
            name,
            &json!({
                "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": covered,
                    "flavors": [{"name": flavor, "resources": quotas}],
                }],
            }),
        ),
        object("LocalQueue", name, &json!({ "clusterQueue": name })),
    ]
}

/// An object of Kueue.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Waits until both pods of the Job by topology are bound; they are on one fabric.
async fn by_topology_on_one_fabric(scope: &Scope) -> anyhow::Result<()> {
    let all: Api<Node> = Api::all(scope.client());
    let bound = eventually(SOON, async || {
        let (bound, waiting) = nodes(scope, "job-name=counted-topology").await?;
        if bound.len() == 2 {
            Ok(Check::Done(bound))
        } else {
            Ok(Check::NotYet(format!("{bound:?}; {waiting:?}")))
        }
    })
    .await?;
    let mut fabrics = BTreeSet::new();
    for node in &bound {
        fabrics.insert(all.get(node).await?.labels()[FABRIC].clone());
    }
    assert_eq!(fabrics.len(), 1, "{bound:?}");
    Ok(())
}
