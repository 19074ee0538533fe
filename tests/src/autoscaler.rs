//! Cluster Autoscaler with its provider `kwok` on a control plane, with all permissions. It creates Node objects;
//! the test plays their kubelets and drivers.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{ControlPlane, Process, Program, Scope, binaries, ports};

const READY: Duration = Duration::from_mins(1);
const CONFIG: &str = "kwok-provider-config";
const TEMPLATES: &str = "kwok-provider-templates";
/// The annotation and the label that name the group of a node.
const GROUP: &str = "cluster-autoscaler.kwok.nodegroup/name";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// A running autoscaler; it is killed when dropped.
#[derive(Debug)]
pub struct Autoscaler(Process);

/// A group of equal nodes.
#[derive(Debug)]
pub struct NodeGroup {
    name: String,
    node: Value,
    slices: Vec<Value>,
}

impl NodeGroup {
    /// A group of nodes of a built-in machine, which is named like the machine and has what `kubectl dranet
    /// machines` prints of it. Its nodes get these labels too.
    ///
    /// # Errors
    ///
    /// Fails if there is no such machine.
    pub fn of(machine: &str, labels: &Value) -> anyhow::Result<Self> {
        let args = ["machines", machine, "--built-in", "--output=nodegroup"];
        let text = binaries::kubectl_dranet(&args)?;
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| text.clone())?;
        let mut objects = objects.into_iter();
        let mut node = objects.next().context("a Node comes first")?;
        for (key, value) in labels.as_object().into_iter().flatten() {
            node["metadata"]["labels"][key] = value.clone();
        }
        node["metadata"]["name"] = machine.into();
        node["metadata"]["labels"][TYPE] = machine.into();
        // A built-in machine has none.
        let resources = json!({"cpu": "128", "memory": "1Ti", "pods": "256"});
        node["status"] = json!({"capacity": resources, "allocatable": resources});
        anyhow::ensure!(node["metadata"]["annotations"][GROUP] == machine, "{text}");
        Ok(Self { name: machine.to_owned(), node, slices: objects.collect() })
    }
}

impl Autoscaler {
    /// Starts it with these groups of nodes. With `has_slices`, it knows what a new node will publish; otherwise
    /// its provider is as it is released.
    ///
    /// # Errors
    ///
    /// Fails if it does not become ready.
    pub async fn start(
        plane: &ControlPlane,
        scope: &Scope,
        groups: &[NodeGroup],
        has_slices: bool,
    ) -> anyhow::Result<Self> {
        let root = plane.directory().join("autoscaler");
        fs::create_dir_all(&root)?;
        let slices: BTreeMap<_, _> =
            groups.iter().map(|group| (&group.name, &group.slices)).collect();
        let file = root.join("slices.json");
        fs::write(&file, serde_json::to_string(&slices)?)?;
        let config = json!({
            "apiVersion": "v1alpha1",
            "readNodesFrom": "configmap",
            "nodegroups": {"fromNodeLabelKey": TYPE},
            "nodes": {"skipTaint": true},
            "configmap": {"name": TEMPLATES},
        });
        let nodes: Vec<_> = groups.iter().map(|group| &group.node).collect();
        let nodes = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
        for (name, key, value) in [(CONFIG, "config", config), (TEMPLATES, "templates", nodes)] {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name}, "data": {key: value.to_string()},
            });
            scope.apply(serde_json::from_value(map)?).await?;
        }

        let (port, kubeconfig) = (ports::free()?, plane.kubeconfig().display().to_string());
        let provider = if has_slices { "kwok-with-slices" } else { "kwok" };
        let process = Program::new(binaries::neighbour("cluster-autoscaler")?, plane.logs())
            .env("KUBECONFIG", &kubeconfig)
            .env("KWOK_PROVIDER_MODE", "local")
            .env("POD_NAMESPACE", scope.namespace())
            .env("RESOURCE_SLICES_FILE_PATH", &file.display().to_string())
            .args([
                format!("--kubeconfig={kubeconfig}"),
                format!("--address=127.0.0.1:{port}"),
                format!("--namespace={}", scope.namespace()),
                format!("--cloud-provider={provider}"),
                "--leader-elect=false".to_owned(),
                "--scan-interval=1s".to_owned(),
                "--scale-down-delay-after-add=1s".to_owned(),
                "--scale-down-unneeded-time=1s".to_owned(),
                "--unremovable-node-recheck-timeout=1s".to_owned(),
                "--v=4".to_owned(),
            ])
            .spawn()?;
        process.wait_until_ready(&format!("http://127.0.0.1:{port}/health-check"), READY).await?;
        Ok(Self(process))
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.0
    }
}
