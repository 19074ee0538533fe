//! A pod with an interface through whatever happens around it, under the real kubelet:
//! the disk full, the interface away, kubelet and containerd killed, the API server out
//! of reach, its sandbox dead.

use std::{fs, sync::Arc, time::Duration};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
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
    door::Door,
    interfaces::{NIC, comes_back, make_link, parameters, pod_with, remove_link, without_pods},
    nri::{has_its_interface, said},
    trouble::Disk,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_pod_waits_until_the_disk_has_room,
        a_pod_waits_for_an_interface_that_vanished,
        a_pod_outlives_kubelet_and_containerd,
        a_container_starts_again_without_the_api_server,
        a_sandbox_that_dies_is_replaced,
        by_nri_a_sandbox_that_dies_is_replaced,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// The kubelet looks once a minute for claims whose pods went away unseen
/// (`defaultReconcilePeriod` of its DRA manager).
const ORPHANS: Duration = Duration::from_mins(2);

async fn a_pod_waits_until_the_disk_has_room(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "no-room", &[NIC]).await?;
    let before = without_pods(links::state()?);
    let disk = Disk::mount(machine.plugin_dir())?;
    machine.start_driver(&[]).await?;
    with_scope(plane.client(), async |scope| {
        disk.fill()?;
        pod_with(scope, &machine, Some(parameters())).await?;
        said(scope, "checkpoint.json`: No space left on device").await?;
        disk.empty()?;
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        // And on the way out: it is unprepared when there is room again.
        disk.fill()?;
        pods::delete_soon(scope, "user").await?;
        disk.empty()?;
        pods::gone(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    machine.kill_driver();
    machine.kill_kubelet();
    remove_link()
}

async fn a_pod_waits_for_an_interface_that_vanished(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "vanished", &[NIC]).await?;
    machine.start_driver(&[]).await?;
    with_scope(plane.client(), async |scope| {
        remove_link()?;
        pod_with(scope, &machine, Some(parameters())).await?;
        said(scope, "has no interface in the host's network namespace").await?;
        make_link()?;
        // It is another interface now.
        let before = without_pods(links::state()?);
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

async fn a_pod_outlives_kubelet_and_containerd(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "outlives", &[NIC]).await?;
    machine.start_driver(&[]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        machine.restart_kubelet().await?;
        machine.restart_containerd().await?;
        has_its_interface(&machine, scope).await?;
        // It is deleted while neither is there, and nor is the driver.
        machine.kill_driver();
        machine.kill_kubelet();
        machine.kill_containerd();
        pods::delete_soon(scope, "user").await?;
        machine.start_driver(&[]).await?;
        machine.restart_containerd_alone().await?;
        machine.restart_kubelet().await?;
        pods::gone(scope, "user").await?;
        eventually(ORPHANS, async || {
            let left = machine.driver_files()?;
            Ok(Check::that(left.is_empty(), || format!("left: {left:?}")))
        })
        .await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

async fn a_container_starts_again_without_the_api_server(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "alone", &[NIC]).await?;
    let door = Door::open(&plane).await?;
    machine.use_kubeconfig(door.kubeconfig(&plane)?);
    machine.restart_kubelet().await?;
    machine.start_driver(&[]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        door.shut();
        kill(container(&machine)?)?;
        starts_again(&machine, scope).await?;
        has_its_interface(&machine, scope).await?;
        door.open_again();
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

async fn a_sandbox_that_dies_is_replaced(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    sandbox_dies(&plane, "sandbox", &[]).await
}

async fn by_nri_a_sandbox_that_dies_is_replaced(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    sandbox_dies(&plane, "nri-sandbox", &["--attach", "nri"]).await
}

/// The kubelet makes another for the same pod, which has the interface then.
async fn sandbox_dies(plane: &ControlPlane, node: &str, flags: &[&str]) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(plane, node, &[NIC]).await?;
    machine.start_driver(flags).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        has_its_interface(&machine, scope).await?;
        let container = container(&machine)?;
        let sandbox = machine.tasks()?.into_iter().find(|pid| *pid != container);
        kill(sandbox.context("the pod has a sandbox")?)?;
        starts_again(&machine, scope).await?;
        has_its_interface(&machine, scope).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

/// The first process of the pod's container, of those that this machine's containerd
/// knows: what an earlier machine left may run still.
fn container(machine: &Machine) -> anyhow::Result<i32> {
    let is_it = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00100000\0")
    };
    machine.tasks()?.into_iter().find(is_it).context("the container runs")
}

fn kill(pid: i32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid).context("a process")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// The container has told of itself a second time.
async fn starts_again(machine: &Machine, scope: &Scope) -> anyhow::Result<()> {
    eventually(pods::POD, async || {
        let log = machine.pod_log(scope.namespace(), "user")?;
        let told: Vec<_> = log.split("\nTOLD\n").collect();
        if let [_, .., last, _] = &told[..]
            && told.len() > 2
        {
            anyhow::ensure!(last.contains("net1 inet 192.168.7.5/24"), "the pod has:\n{last}");
            return Ok(Check::Done(()));
        }
        let links = shell("ip -o link")?;
        Ok(Check::NotYet(format!("told {} times; the host has:\n{links}", told.len() - 1)))
    })
    .await
}
