//! What remains after the driver ends: a restart removes no device; `--cleanup` and deleting the
//! node remove everything.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tempfile::TempDir;
use tests::{
    Check, ControlPlane, Process, eventually,
    installation::{Installation, gb300_machine},
    suite::Test,
    with_scope,
};
use topology_graph::NodeTopology;

const SOON: Duration = Duration::from_mins(1);
/// NICs of a GB300 machine.
const NICS: usize = 4;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        a_restart_removes_no_device_and_cleanup_removes_all,
        deleting_the_node_removes_everything,
        only_the_graph_is_published_next_to_another_driver,
    ]
}

/// One node, its machine, and what is published for it.
struct Published<'a> {
    plane: &'a ControlPlane,
    node: String,
    machine: TempDir,
    kubeconfig: PathBuf,
}

impl<'a> Published<'a> {
    async fn new(
        plane: &'a ControlPlane,
        installation: &Installation<'_>,
        node: Node,
    ) -> anyhow::Result<Self> {
        let node = node.name_any();
        let kubeconfig = installation.node_kubeconfig("node-driver", &node).await?;
        let machine = gb300_machine(&node)?;
        Ok(Self { plane, node, machine, kubeconfig })
    }

    fn driver(&self, more: &[&str]) -> anyhow::Result<Process> {
        let root = self.machine.path().display().to_string();
        self.plane
            .program("node-driver")?
            .named(&format!("driver-{}", self.node))
            .args(["--node-name", &self.node, "--root", &root, "--cloud", "none"])
            .args(["--operations-listen", "127.0.0.1:0", "--kubeconfig"])
            .args([self.kubeconfig.display().to_string()])
            .args(more.iter().copied())
            .spawn()
    }

    /// The names and versions of the slices, and the number of their devices.
    async fn slices(&self) -> anyhow::Result<(Vec<(String, String)>, usize)> {
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let slices = Api::<ResourceSlice>::all(self.plane.client()).list(&own).await?.items;
        let devices = slices.iter().map(|slice| slice.spec.devices.iter().flatten().count()).sum();
        let version = |slice: &ResourceSlice| slice.resource_version().unwrap_or_default();
        Ok((slices.iter().map(|slice| (slice.name_any(), version(slice))).collect(), devices))
    }

    /// The version of the graph.
    async fn graph(&self) -> anyhow::Result<Option<String>> {
        let graphs = Api::<NodeTopology>::all(self.plane.client());
        Ok(graphs.get_opt(&self.node).await?.and_then(|graph| graph.resource_version()))
    }

    /// Waits until this number of NICs is published, and the graph exists or does not.
    async fn has(&self, nics: usize, graph: bool) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let found = (self.slices().await?, self.graph().await?);
            let holds = found.0.1 == nics && found.1.is_some() == graph;
            let gone = nics > 0 || found.0.0.is_empty();
            Ok(Check::that(holds && gone, || format!("instead of {nics} NICs: {found:?}")))
        })
        .await
    }
}

async fn a_restart_removes_no_device_and_cleanup_removes_all(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let published = Published::new(&plane, &installation, scope.node("restart").await?).await?;
        let driver = published.driver(&[])?;
        published.has(NICS, true).await?;
        driver.terminate(SOON).await?;
        anyhow::ensure!(driver.ended_by_signal().is_none(), "it ends by itself when told to");
        let before = (published.slices().await?, published.graph().await?);
        anyhow::ensure!(before.0.1 == NICS, "SIGTERM leaves what is published: {before:?}");

        let driver = published.driver(&[])?;
        eventually(SOON, async || {
            let log = driver.tail(20);
            Ok(Check::that(log.contains("Nothing to write"), || log.clone()))
        })
        .await?;
        let after = (published.slices().await?, published.graph().await?);
        assert_eq!(before, after, "a restart writes nothing");
        driver.terminate(SOON).await?;

        published.driver(&["--cleanup"])?.wait_for_success(SOON).await?;
        let left = (published.slices().await?, published.graph().await?);
        assert_eq!(left, ((vec![], 0), None), "nothing is left when it has ended");
        // Cleaning up again succeeds.
        published.driver(&["--cleanup"])?.wait_for_success(SOON).await.map(drop)
    })
    .await
}

async fn deleting_the_node_removes_everything(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let published = Published::new(&plane, &installation, scope.node("leaving").await?).await?;
        published.driver(&["--once"])?.wait_for_success(SOON).await?;
        published.has(NICS, true).await?;
        let nodes: Api<Node> = Api::all(plane.client());
        nodes.delete(&published.node, &DeleteParams::default()).await?;
        published.has(0, false).await.context("the garbage collector removes what a node owns")
    })
    .await
}

async fn only_the_graph_is_published_next_to_another_driver(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let published = Published::new(&plane, &installation, scope.node("graph").await?).await?;
        published.driver(&["--once", "--mode=topology"])?.wait_for_success(SOON).await?;
        assert_eq!(published.slices().await?.1, 0);
        anyhow::ensure!(published.graph().await?.is_some(), "no graph");
        // Slices of another driver with the same name stay unchanged.
        published.driver(&["--once"])?.wait_for_success(SOON).await?;
        let before = published.slices().await?;
        published.driver(&["--once", "--mode=topology"])?.wait_for_success(SOON).await?;
        assert_eq!(published.slices().await?, before);
        Ok(())
    })
    .await
}
