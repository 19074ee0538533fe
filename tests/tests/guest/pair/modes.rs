//! The mode of the RDMA subsystem, as the driver publishes it and `kubectl dranet doctor` prints it.

use anyhow::Context;
use kube::Api;
use tests::{Check, ControlPlane, binaries, eventually, guest::node::GuestNode, node::pods};
use tokio::process::Command;
use topology_graph::NodeTopology;

/// Waits until both nodes have the mode in their NodeTopologies.
pub(super) async fn published(
    plane: &ControlPlane,
    pair: &[GuestNode; 2],
    mode: &str,
) -> anyhow::Result<()> {
    let topologies: Api<NodeTopology> = Api::all(plane.client());
    for node in pair {
        eventually(pods::POD, async || {
            let told = topologies.get(&node.name).await?.spec.rdma_namespace_mode;
            let is_it = told.as_deref() == Some(mode);
            Ok(Check::that(is_it, || format!("node {} has {told:?}, not {mode}", node.name)))
        })
        .await?;
    }
    let mut doctor = Command::new(binaries::ours("kubectl-dranet")?);
    let output = doctor.args(["doctor", "--kubeconfig"]).arg(plane.kubeconfig()).output().await?;
    let text = String::from_utf8(output.stdout).context("it prints text")?;
    let expected = format!("RDMA namespace mode: {mode} on 2 nodes");
    anyhow::ensure!(text.contains(&expected), "`{expected}` is missing in:\n{text}");
    Ok(())
}
