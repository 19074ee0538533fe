//! What every autoscaler must do: from no node to pods on new nodes with the devices that they were promised, for
//! machines that the cluster has not seen, and nodes that go when they are not needed. This plays the kubelets and
//! drivers of the nodes that it adds.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use futures::{TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, binaries, eventually,
    installation::{Installation, PLACEMENT_GROUP},
    machine::{A100, AMD_CLASS, H100, MI300X, Machine},
    simulated_node,
};

use super::kueue::FABRIC;

const SOON: Duration = Duration::from_mins(3);
const TYPE: &str = "node.kubernetes.io/instance-type";
const GB300: &str = "azure-gb300";

/// A built-in machine, its GPUs, and how its node publishes them.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    gpus: usize,
    class: &'static str,
    machine: Option<Machine>,
}

pub(crate) const KINDS: [Kind; 4] = [
    Kind { name: GB300, gpus: 4, class: "gpu.nvidia.com", machine: None },
    Kind { name: "azure-mi300x", gpus: 8, class: "gpu.amd.com", machine: Some(MI300X) },
    Kind { name: "azure-ndh100v5", gpus: 8, class: "gpu.nvidia.com", machine: Some(H100) },
    Kind { name: "azure-nda100v4", gpus: 8, class: "gpu.nvidia.com", machine: Some(A100) },
];

/// The labels of the nodes of all groups.
pub(crate) fn labels() -> Value {
    json!({ FABRIC: PLACEMENT_GROUP })
}

/// Our programs on a cluster without nodes, whose one fabric an autoscaler can grow.
pub(crate) async fn empty<'a>(
    plane: &'a ControlPlane,
    scope: &'a Scope,
) -> anyhow::Result<Installation<'a>> {
    let mut installation = Installation::install(plane, scope).await?;
    scope.apply_yaml(AMD_CLASS).await?;
    let growing = format!("--growing-fabrics={PLACEMENT_GROUP}");
    installation.start_fabric_controllers(1, &[&growing]).await?;
    installation.start_replicas(1, &["--fabric-controller"]).await?;
    Ok(installation)
}

/// Runs pods and a gang until an autoscaler has added nodes for them, and lets the pods end. The annotation
/// keeps the autoscaler from moving the gang.
pub(crate) async fn from_no_node_and_back(
    plane: &ControlPlane,
    player: &Player<'_>,
    stays: (&str, &str),
) -> anyhow::Result<()> {
    let scope = player.scope;
    // Two of three pods share a node, half of whose GPUs each of them has.
    for kind in &KINDS {
        for index in 0..3 {
            scope.apply(serde_json::from_value(half(kind, index))?).await?;
        }
    }
    let pods = player.until_bound("app=single", 3 * KINDS.len()).await?;
    for kind in &KINDS {
        let of_kind = pods.iter().filter(|pod| pod.name_any().starts_with(kind.name));
        let nodes: BTreeSet<_> = of_kind.filter_map(node_of).collect();
        assert_eq!(nodes.len(), 2, "{}: {nodes:?}", kind.name);
    }
    verified(plane, scope)?;

    // A gang waits for its fabric, which can grow.
    scope.apply(serde_json::from_value(job(stays))?).await?;
    let gang = player.until_bound("job-name=gang", 2).await?;
    let used: BTreeSet<_> = gang.iter().filter_map(node_of).map(str::to_owned).collect();
    assert_eq!(used.len(), 2, "{used:?}");
    verified(plane, scope)?;

    // Nodes that are not needed go, those of the gang stay.
    for pod in &pods {
        scope.delete_pod(&pod.name_any()).await?;
    }
    player.until_only(&used).await?;
    let after = player.pods("job-name=gang").await?;
    let identities =
        |pods: &[Pod]| pods.iter().filter_map(ResourceExt::uid).collect::<BTreeSet<_>>();
    assert_eq!(identities(&after), identities(&gang));
    Ok(())
}

/// Every pod has the paths that it was promised.
fn verified(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<()> {
    let kubeconfig = plane.kubeconfig().display().to_string();
    let args = ["verify", "--namespace", scope.namespace(), "--kubeconfig", &kubeconfig];
    binaries::kubectl_dranet(&args).map(drop)
}

/// Plays the kubelets and drivers of the nodes that an autoscaler creates.
pub(crate) struct Player<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) installation: &'a Installation<'a>,
}

impl Player<'_> {
    async fn pods(&self, selector: &str) -> anyhow::Result<Vec<Pod>> {
        let selected = ListParams::default().labels(selector);
        Ok(self.scope.api::<Pod>().list(&selected).await?.items)
    }

    /// Waits until so many pods are bound; their paths are as promised.
    pub(crate) async fn until_bound(
        &self,
        selector: &str,
        count: usize,
    ) -> anyhow::Result<Vec<Pod>> {
        eventually(SOON, async || {
            self.boot().await?;
            let pods = self.pods(selector).await?;
            let waits = pods.iter().filter(|pod| node_of(pod).is_none()).map(ResourceExt::name_any);
            let waits: Vec<String> = waits.collect();
            if waits.is_empty() && pods.len() == count {
                return Ok(Check::Done(pods));
            }
            Ok(Check::NotYet(format!("of {} pods, {waits:?} have no node", pods.len())))
        })
        .await
    }

    /// Waits until there are these nodes only.
    async fn until_only(&self, expected: &BTreeSet<String>) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.scope.client());
        eventually(SOON, async || {
            let all = nodes.list(&ListParams::default()).await?;
            let names: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
            Ok(Check::that(names == *expected, || format!("{names:?}")))
        })
        .await
    }

    /// Lets nodes that were created become ready and publish their devices.
    async fn boot(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.scope.client());
        let all = nodes.list(&ListParams::default()).await?.items;
        let new = all.into_iter().filter(|node| !is_ready(node));
        stream::iter(new.map(Ok))
            .try_for_each_concurrent(2, async |node| self.start(&node).await)
            .await
    }

    async fn start(&self, node: &Node) -> anyhow::Result<()> {
        let name = node.name_any();
        let of_type = node.labels().get(TYPE).context("a node has a type")?;
        let kind = KINDS.iter().find(|kind| kind.name == of_type).context("a known type")?;
        // Drivers come later than the kubelet, and no more nodes may be added meanwhile.
        simulated_node::make_ready(&self.scope.client(), &name).await?;
        match kind.machine {
            Some(machine) => self.installation.publish_as(&name, machine).await,
            None => self.installation.publish_gb300(&name).await,
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A pod with half of a machine's GPUs, each with a near NIC.
fn half(kind: &Kind, index: usize) -> Value {
    pod(kind, kind.gpus / 2, index)
}

/// A pod with all of a machine's GPUs, each with a near NIC.
pub(crate) fn whole(kind: &Kind, index: usize) -> Value {
    pod(kind, kind.gpus, index)
}

fn pod(kind: &Kind, gpus: usize, index: usize) -> Value {
    let mut pod = template(kind, gpus);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = format!("{}-{index}", kind.name).into();
    pod["metadata"]["labels"] = json!({"app": "single"});
    pod
}

/// Two pods with whole nodes of one fabric, which an autoscaler does not move.
fn job((key, value): (&str, &str)) -> Value {
    let kind = &KINDS[0];
    let mut template = template(kind, kind.gpus);
    let annotations = &mut template["metadata"]["annotations"];
    annotations["dranet.io/fabric"] = "same".into();
    annotations["dranet.io/fabric-wait"] = "1".into();
    annotations[key] = value.into();
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang"},
        "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template,
        },
    })
}

fn template(kind: &Kind, gpus: usize) -> Value {
    json!({
        "metadata": {"annotations": {
            "dranet.io/aligned-nics": "per-gpu",
            "dranet.io/gpus": gpus.to_string(),
            "dranet.io/gpu-class": kind.class,
            "dranet.io/unknown-shape": "admit",
        }},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": { TYPE: kind.name },
            "containers": [{
                "name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}},
            }],
        },
    })
}
