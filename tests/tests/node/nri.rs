//! Interfaces by NRI, the other way into a pod: what holds of the hook holds of it,
//! and of the times when containerd and the driver do not hear of each other.

use std::sync::Arc;

use tests::{
    Check, ControlPlane, Scope, eventually,
    floor::Test,
    node::{
        Machine,
        links::{self, shell},
        pods,
    },
    with_scope,
};

use super::{
    interfaces::{
        NIC, comes_back, comes_back_after_a_kill, dies_and_goes_on, fails_and_is_undone,
        goes_in_and_comes_back, make_link, parameters, pod_with, remove_link, without_pods,
    },
    rdma::told,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        by_nri_an_interface_goes_in_and_comes_back_as_it_was,
        by_nri_a_failure_to_attach_stops_the_pod_and_is_undone,
        by_nri_the_interface_comes_back_after_the_driver_was_killed,
        by_nri_wherever_the_driver_dies_it_goes_on,
        by_nri_a_pod_without_the_driver_waits_for_it,
        by_nri_containerd_and_the_driver_find_each_other_again,
        running_pods_survive_a_change_of_the_way,
    ];
    all.into_iter().map(Test::alone).collect()
}

const NRI: [&str; 2] = ["--attach", "nri"];

async fn by_nri_an_interface_goes_in_and_comes_back_as_it_was(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    goes_in_and_comes_back(&plane, "nri-move", &NRI).await
}

async fn by_nri_a_failure_to_attach_stops_the_pod_and_is_undone(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    fails_and_is_undone(&plane, "nri-fail", &NRI).await
}

async fn by_nri_the_interface_comes_back_after_the_driver_was_killed(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    comes_back_after_a_kill(&plane, "nri-killed", &NRI).await
}

/// As for the hook: on the way out those after the interface is back.
const FAULTS: [(&str, &str); 4] = [
    ("sandbox:record:before", "sandbox:leave:links"),
    ("sandbox:record:after", "sandbox:leave:after"),
    ("sandbox:links:after", "unprepare:links:after"),
    ("sandbox:ready:after", "unprepare:files:after"),
];

async fn by_nri_wherever_the_driver_dies_it_goes_on(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    dies_and_goes_on(&plane, "nri-crash", &NRI, &FAULTS).await
}

/// NRI lets a pod pass whose plugin is away: its sandbox runs, and its container starts
/// when the interface is there, and not before.
async fn by_nri_a_pod_without_the_driver_waits_for_it(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "nri-away", &[NIC]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        // It prepares the claim, and ends when the runtime asks it.
        machine.start_driver(&[&NRI[..], &["--kill-at", "sandbox:record:before"]].concat()).await?;
        pod_with(scope, &machine, Some(parameters())).await?;
        said(scope, "/run/ready/").await?;
        shell("ip link show rail0")?;
        machine.kill_driver();
        machine.start_driver(&NRI).await?;
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

/// An event of the pod that has these words.
pub(crate) async fn said(scope: &Scope, words: &str) -> anyhow::Result<()> {
    eventually(pods::POD, async || {
        let events = pods::events(scope, "user").await?;
        let is_said = events.iter().any(|event| event.contains(words));
        Ok(Check::that(is_said, || format!("{events:?}")))
    })
    .await
}

pub(crate) async fn has_its_interface(machine: &Machine, scope: &Scope) -> anyhow::Result<()> {
    let told = told(machine, scope, "user").await?;
    anyhow::ensure!(told.contains("net1 inet 192.168.7.5/24"), "the pod has:\n{told}");
    anyhow::ensure!(shell("ip link show rail0").is_err(), "the host has it");
    Ok(())
}

/// containerd restarts, and the driver is killed while it is away: a pod that runs keeps
/// its interface, and one that is deleted then gives it back.
async fn by_nri_containerd_and_the_driver_find_each_other_again(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "nri-again", &[NIC]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        machine.start_driver(&NRI).await?;
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        machine.restart_containerd().await?;
        has_its_interface(&machine, scope).await?;
        machine.kill_containerd();
        machine.kill_driver();
        machine.start_driver(&NRI).await?;
        machine.restart_containerd().await?;
        has_its_interface(&machine, scope).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await?;
        // And the way in is open again.
        pods::delete_claim(scope, "user").await?;
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

/// An operator changes the flag under pods that run.
async fn running_pods_survive_a_change_of_the_way(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "nri-change", &[NIC]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        for (first, second) in [(&[][..], &NRI[..]), (&NRI, &[])] {
            machine.start_driver(first).await?;
            pod_with(scope, &machine, Some(parameters())).await?;
            pods::running(scope, "user").await?;
            machine.kill_driver();
            machine.start_driver(second).await?;
            has_its_interface(&machine, scope).await?;
            pods::delete(scope, "user").await?;
            comes_back(&machine, &before).await?;
            machine.kill_driver();
            pods::delete_claim(scope, "user").await?;
        }
        Ok(())
    })
    .await?;
    remove_link()
}
