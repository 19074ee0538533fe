//! A live cluster, read once: the one place with a client and a runtime.

use anyhow::Context as _;
use cluster_model::read;
use cluster_model::view::ClusterView;
use fabric_controller::nodes::Nodes;
use fabric_controller::pods::Pods;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use process::args::KubeArgs;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// A connection to the API server.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
}

impl Cluster {
    /// Connects as the flags say; the API server is asked first when something is read.
    pub(crate) fn connect(args: &KubeArgs) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(process::client::connect(args))?;
        Ok(Self { runtime, client })
    }

    /// Namespace of the kubeconfig's context.
    pub(crate) fn default_namespace(&self) -> String {
        self.client.default_namespace().to_owned()
    }

    /// Every object that graphs and plans are made from.
    pub(crate) fn view(&self) -> anyhow::Result<ClusterView> {
        self.runtime.block_on(read::cluster(&self.client)).context("failed to read the cluster")
    }

    /// Adds the quotas of all namespaces to the view.
    pub(crate) fn add_quotas(&self, view: &mut ClusterView) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(read::all_quotas(&self.client, view))?)
    }

    /// Adds the quotas of one namespace to the view.
    pub(crate) fn add_quotas_of(
        &self,
        namespace: &str,
        view: &mut ClusterView,
    ) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(read::quotas(&self.client, namespace, view))?)
    }

    /// Adds the machines that admission, in this namespace, remembers.
    pub(crate) fn add_remembered_machines(
        &self,
        namespace: &str,
        view: &mut ClusterView,
    ) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(read::machines(&self.client, namespace, view))?)
    }

    /// A pod, in this namespace or in that of the context.
    pub(crate) fn pod(&self, namespace: Option<&str>, name: &str) -> anyhow::Result<Value> {
        let namespace = namespace.unwrap_or_else(|| self.client.default_namespace());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = self.runtime.block_on(pods.get(name));
        let pod = pod.with_context(|| format!("failed to read Pod `{name}` of `{namespace}`"))?;
        object(&pod)
    }

    /// The pods of a namespace, or of all.
    pub(crate) fn pods(&self, namespace: Option<&str>) -> anyhow::Result<Vec<Pod>> {
        let pods: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let mut found = Vec::new();
        let listed = read::each_of(&pods, |pod| found.push(pod));
        self.runtime.block_on(listed).context("failed to list pods")?;
        Ok(found)
    }

    /// The pods and nodes that the choice of a fabric depends on.
    pub(crate) fn pods_and_nodes(&self) -> anyhow::Result<(Pods, Nodes)> {
        let (mut pods, mut nodes) = (Pods::default(), Nodes::default());
        let take = |pod: Pod| _ = pods.apply(&pod);
        self.runtime.block_on(read::each(&self.client, take)).context("failed to list pods")?;
        let take = |node: Node| _ = nodes.apply(&node);
        self.runtime.block_on(read::each(&self.client, take)).context("failed to list nodes")?;
        Ok((pods, nodes))
    }
}

/// A pod with its kind, which the API server leaves out of what it answers with one type.
fn object(pod: &Pod) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(pod)?;
    object["apiVersion"] = "v1".into();
    object["kind"] = "Pod".into();
    Ok(object)
}
