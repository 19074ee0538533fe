//! The environment of every test of a node: links that act as its NICs' interfaces, the machine,
//! and a namespace of the cluster. After a successful test, leaks are checked. In any case
//! everything is removed before the next test.

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

/// Runs a test that acts as the kubelet and the container runtime itself.
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
        machine.wait_until_clean().await
    })
    .await
}
