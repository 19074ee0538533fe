//! Interfaces by NRI, the other way into a pod: what holds of the hook holds of it,
//! and of the times when containerd and the driver do not hear of each other.

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, eventually,
    floor::Test,
    node::{
        Machine, Nic,
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
    settings::Server,
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
        a_pod_that_waits_for_dhcp_holds_up_no_other,
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

/// Another NIC, for another pod.
const OTHER: Nic = Nic { address: "0202:00:00.0", link: "rail1" };

/// The runtime would close a plugin that takes as long as a DHCP server may, and every
/// pod of the node waits for a plugin's answer. So its pod alone waits, in the hook.
async fn a_pod_that_waits_for_dhcp_holds_up_no_other(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    shell("ip link add rail1 type veth peer name rail1-peer")?;
    let mut machine = Machine::start(&plane, "nri-dhcp", &[NIC, OTHER]).await?;
    machine.start_driver(&NRI).await?;
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(json!({"interface": {"name": "net1", "dhcp": true}})))
            .await?;
        eventually(pods::POD, async || {
            let is_away = shell("ip link show rail0").is_err();
            Ok(Check::that(is_away, || "the interface is not in the pod".to_owned()))
        })
        .await?;
        // Nobody answers that pod, and others come and go.
        let (node, device) = (machine.name.as_str(), OTHER.device());
        let addresses = json!({"interface": {"name": "net1", "addresses": ["192.168.8.5/24"]}});
        pods::allocated_claim(scope, "other", node, &device, Some(addresses)).await?;
        let claim = json!({"resourceClaimName": "other"});
        pods::create_bound(scope, pods::pod("other", node, claim)?, node).await?;
        pods::running(scope, "other").await?;
        let told_of_other = told(&machine, scope, "other").await?;
        assert!(told_of_other.contains("net1 inet 192.168.8.5/24"), "{told_of_other}");
        pods::delete(scope, "other").await?;
        let waiting = pods::events(scope, "user").await?;
        assert!(!waiting.iter().any(|event| event.starts_with("Started")), "{waiting:?}");

        let _server = Server::offering(&plane, ["10.66.0.50", "10.66.0.60"], 600)?;
        pods::running(scope, "user").await?;
        let told_of_user = told(&machine, scope, "user").await?;
        assert!(told_of_user.contains("net1 inet 10.66.0.5"), "{told_of_user}");
        let driver = machine.driver().context("it runs")?.tail(1000);
        assert!(!driver.contains("closed the connection"), "{driver}");
        pods::delete(scope, "user").await
    })
    .await?;
    shell("ip link del rail1-peer")?;
    remove_link()
}
