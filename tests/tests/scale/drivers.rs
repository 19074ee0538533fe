//! Drivers that keep running on some of the nodes, each with the token of its node, to see what they
//! do when the API server comes back.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use tempfile::TempDir;
use tests::{
    ControlPlane, Process,
    imds::Imds,
    installation::{Installation, PLACEMENT_GROUP, VM_SIZE, gb300_machine},
};

/// Running drivers with their machines.
#[derive(Debug)]
pub(crate) struct Drivers {
    _all: Vec<(Process, TempDir)>,
    _imds: Imds,
}

impl Drivers {
    /// Starts drivers on nodes that are copies of this one.
    pub(crate) async fn start(
        plane: &ControlPlane,
        installation: &Installation<'_>,
        kind: &str,
        count: usize,
    ) -> anyhow::Result<Self> {
        let imds = Imds::start(VM_SIZE, PLACEMENT_GROUP).await?;
        let nodes = Api::<Node>::all(plane.client()).list_metadata(&ListParams::default()).await?;
        let names =
            nodes.items.iter().map(ResourceExt::name_any).filter(|name| name.starts_with(kind));
        let mut all = Vec::new();
        for node in names.take(count) {
            let kubeconfig = installation.node_kubeconfig("node-driver", &node).await?;
            let machine = gb300_machine(&node)?;
            let driver = plane
                .program("node-driver")?
                .named(&format!("node-driver-{node}"))
                .args([
                    "--node-name",
                    node.as_str(),
                    "--cloud=azure",
                    "--imds-url",
                    imds.url().as_str(),
                ])
                .args(["--operations-listen", "127.0.0.1:0", "--log", "warn"])
                .args(["--root".to_owned(), machine.path().display().to_string()])
                .args(["--kubeconfig".to_owned(), kubeconfig.display().to_string()])
                .spawn()?;
            all.push((driver, machine));
        }
        Ok(Self { _all: all, _imds: imds })
    }
}
