//! A pod with an interface under the real kubelet, while the disk is full, the interface is
//! missing, kubelet and containerd are killed, the API server is unreachable for `$DRANET_AWAY`
//! seconds (15), or its sandbox dies.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tests::{
    Check, ControlPlane, Scope, eventually,
    node::{
        Machine, Nic,
        links::{self, shell},
        pods, with_machine,
    },
    setting,
    suite::Test,
};
use tokio::time::{Instant, sleep_until};

use super::{
    api_partition::ApiPartition,
    trouble::Disk,
    user::{self, NIC},
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_pod_waits_until_the_disk_has_room,
        a_pod_waits_for_an_interface_that_vanished,
        a_pod_outlives_kubelet_and_containerd,
        pods_keep_running_without_the_api_server,
        a_sandbox_that_dies_is_replaced,
        by_nri_a_sandbox_that_dies_is_replaced,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn a_pod_waits_until_the_disk_has_room(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "no-room", &[NIC], async |machine, scope| {
        let disk = Disk::mount(machine.plugin_dir())?;
        machine.start_driver(&[]).await?;
        disk.fill()?;
        user::create(scope, machine, Some(user::parameters())).await?;
        user::is_told(scope, "plan.json`: No space left on device").await?;
        disk.empty()?;
        user::runs(scope, machine).await?;
        // The same for its end: it is unprepared when there is room again.
        disk.fill()?;
        pods::delete_soon(scope, "user").await?;
        disk.empty()?;
        pods::gone(scope, "user").await
    })
    .await
}

async fn a_pod_waits_for_an_interface_that_vanished(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "vanished", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        links::remove(NIC.link)?;
        user::create(scope, machine, Some(user::parameters())).await?;
        user::is_told(scope, "has no interface in the host's network namespace").await?;
        links::make(&[NIC]).await?;
        user::runs(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

async fn a_pod_outlives_kubelet_and_containerd(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "outlives", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        user::start(scope, machine).await?;
        machine.restart_kubelet().await?;
        machine.restart_containerd().await?;
        user::has_its_interface(scope, machine).await?;
        // It is deleted while both are down, and the driver too.
        machine.kill_driver();
        machine.kill_kubelet();
        machine.kill_containerd();
        pods::delete_soon(scope, "user").await?;
        machine.start_driver(&[]).await?;
        machine.restart_containerd_alone().await?;
        machine.restart_kubelet().await?;
        pods::gone(scope, "user").await
    })
    .await
}

/// Running pods continue meanwhile, with or without the driver. Requested changes happen when the
/// server is back.
async fn pods_keep_running_without_the_api_server(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let away = setting("DRANET_AWAY", 15)?;
    with_machine(&plane, "away", &[NIC, LEAVING, COMING], async |machine, scope| {
        let partition = ApiPartition::proxy(&plane).await?;
        machine.use_kubeconfig(partition.kubeconfig(&plane)?);
        machine.restart_kubelet().await?;
        machine.start_driver(&[]).await?;
        user::start(scope, machine).await?;
        let container = user::container(machine)?;
        user_of(scope, machine, &LEAVING).await?;
        pods::running(scope, LEAVING.link).await?;

        partition.begin();
        let back = Instant::now() + Duration::from_secs(away);
        machine.kill_driver();
        user::kill(container)?;
        starts_again(scope, machine).await?;
        user::has_its_interface(scope, machine).await?;
        machine.start_driver(&[]).await?;
        pods::delete_soon(scope, LEAVING.link).await?;
        user_of(scope, machine, &COMING).await?;
        sleep_until(back).await;
        shell("ip link show rail2").context("the node cannot know of the pod yet")?;
        partition.end();

        pods::running(scope, COMING.link).await?;
        assert!(shell("ip link show rail2").is_err(), "the pod has it");
        for pod in ["user", COMING.link] {
            pods::delete(scope, pod).await?;
        }
        Ok(())
    })
    .await
}

const LEAVING: Nic = Nic { address: "0202:00:00.0", link: "rail1" };
const COMING: Nic = Nic { address: "0203:00:00.0", link: "rail2" };

/// A pod that is named after its NIC's interface.
async fn user_of(scope: &Scope, machine: &Machine, nic: &Nic) -> anyhow::Result<()> {
    pods::create_user(scope, [nic.link, &machine.name, &nic.device()], None).await?;
    Ok(())
}

async fn a_sandbox_that_dies_is_replaced(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    sandbox_dies(&plane, "sandbox", &[]).await
}

async fn by_nri_a_sandbox_that_dies_is_replaced(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    sandbox_dies(&plane, "nri-sandbox", &["--attach", "nri"]).await
}

/// The kubelet creates another one for the same pod, which then has the interface.
async fn sandbox_dies(plane: &ControlPlane, node: &str, flags: &[&str]) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(flags).await?;
        user::start(scope, machine).await?;
        user::kill_sandbox(machine)?;
        starts_again(scope, machine).await?;
        user::has_its_interface(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

/// Checks that the container has printed its state a second time.
async fn starts_again(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
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
