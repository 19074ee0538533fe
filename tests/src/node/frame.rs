//! What every test of a node stands in: links that stand for its NICs' interfaces, the
//! machine, and a namespace of the cluster. Where the test has passed, the machine comes
//! to rest; and however it ends, nothing of it is there for the next.

use crate::{
    ControlPlane, Scope, gb300,
    node::{Machine, Nic, links::Links},
    simulated_node, with_scope,
};

/// Runs a test on a node with a kubelet and a container runtime.
pub async fn with_machine(
    plane: &ControlPlane,
    name: &str,
    nics: &[Nic],
    test: impl AsyncFnOnce(&mut Machine, &Scope) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _links = Links::make(nics).await?;
    within(plane, Machine::start(plane, name, nics).await?, test).await
}

/// Runs a test that plays the kubelet's and the container runtime's part itself.
pub async fn with_played_machine(
    plane: &ControlPlane,
    name: &str,
    nics: &[Nic],
    test: impl AsyncFnOnce(&mut Machine, &Scope) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _links = Links::make(nics).await?;
    simulated_node::apply(&plane.client(), name).await?;
    within(plane, Machine::alone(plane, name, nics)?, test).await
}

async fn within(
    plane: &ControlPlane,
    mut machine: Machine,
    test: impl AsyncFnOnce(&mut Machine, &Scope) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        scope.apply_file(&gb300::file("device-classes.yaml")).await?;
        test(&mut machine, scope).await?;
        machine.comes_to_rest().await
    })
    .await
}
