//! Attaches interfaces by NRI instead of the hook. The same must hold as for the hook, also while
//! containerd and the driver are disconnected.

use std::{fs, sync::Arc};

use anyhow::Context;
use serde_json::json;
use tests::{
    Check, ControlPlane, eventually,
    node::{Nic, links::shell, pods, with_machine},
    suite::Test,
};

use super::{
    interfaces::{
        comes_back_after_a_kill, fails_and_is_undone, goes_in_and_comes_back,
        has_its_interface_with_own_users,
    },
    settings::Server,
    user::{self, NIC},
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        by_nri_an_interface_goes_in_and_comes_back_as_it_was,
        by_nri_a_failure_to_attach_stops_the_pod_and_is_undone,
        by_nri_the_interface_comes_back_after_the_driver_was_killed,
        by_nri_a_pod_without_the_driver_waits_for_it,
        by_nri_a_second_pod_of_a_claim_waits_for_the_driver,
        by_nri_a_pod_in_a_user_namespace_has_its_interface,
        by_nri_a_pod_in_a_user_namespace_waits_for_the_driver,
        by_nri_a_pod_in_a_user_namespace_waits_even_with_interface,
        by_nri_containerd_and_the_driver_reconnect,
        running_pods_survive_a_change_of_the_attach_mode,
        a_pod_that_waits_for_dhcp_delays_no_other,
    ];
    all.into_iter().map(Test::alone).collect()
}

pub(crate) const NRI: [&str; 2] = ["--attach", "nri"];

/// The flags for pods with RDMA devices. A runtime that may not raise limits would refuse their
/// containers.
pub(crate) fn nri_with_rdma() -> anyhow::Result<&'static [&'static str]> {
    let without = &["--attach", "nri", "--locked-memory", "false"];
    Ok(if may_raise_limits()? { &NRI } else { without })
}

/// Returns true if this process and its children, the runtime among them, may raise a hard limit
/// (`capabilities(7)`).
pub(crate) fn may_raise_limits() -> anyhow::Result<bool> {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.context("the kernel shows capabilities")?.trim();
    Ok(u64::from_str_radix(effective, 16)? >> CAP_SYS_RESOURCE & 1 == 1)
}

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

/// NRI does not hold a pod while the plugin is down: its sandbox runs. Its container starts only
/// when the interface is attached.
async fn by_nri_a_pod_without_the_driver_waits_for_it(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "nri-away", &[NIC], async |machine, scope| {
        // It prepares the claim, and ends when the runtime calls it.
        machine.start_driver(&[&NRI[..], &["--kill-at", "sandbox:record:before"]].concat()).await?;
        user::create_from_template(scope, machine).await?;
        user::is_told(scope, "/run/ready/").await?;
        shell("ip link show rail0")?;
        machine.kill_driver();
        machine.start_driver(&NRI).await?;
        user::runs(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

/// Two pods have one claim, whose interface is in the first. While the driver is away, no container of the second
/// one starts; afterwards it waits until the first one ends.
async fn by_nri_a_second_pod_of_a_claim_waits_for_the_driver(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "nri-second", &[NIC], async |machine, scope| {
        machine.start_driver(&NRI).await?;
        user::start(scope, machine).await?;
        machine.kill_driver();
        let second = pods::pod("second", &machine.name, json!({"resourceClaimName": "user"}))?;
        pods::create_bound_with(scope, second, "user", &machine.name).await?;
        user::pod_is_told(scope, "second", "/run/never/").await?;
        machine.start_driver(&NRI).await?;
        user::pod_is_told(scope, "second", "another running pod").await?;
        user::has_its_interface(scope, machine).await?;
        pods::delete(scope, "user").await?;
        pods::running(scope, "second").await?;
        let told = pods::told(scope, machine, "second").await?;
        assert!(told.contains("net1 inet 192.168.7.5/24"), "{told}");
        pods::delete(scope, "second").await
    })
    .await
}

async fn by_nri_a_pod_in_a_user_namespace_has_its_interface(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    has_its_interface_with_own_users(&plane, "nri-users", &NRI).await
}

async fn by_nri_a_pod_in_a_user_namespace_waits_for_the_driver(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    waits_with_own_users(&plane, "nri-users-away", "sandbox:record:before", false).await
}

/// Its container cannot make the mount that it waits for, and the driver's response that would
/// remove the mount is missing.
async fn by_nri_a_pod_in_a_user_namespace_waits_even_with_interface(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    waits_with_own_users(&plane, "nri-users-half", "sandbox:ready:after", true).await
}

/// The driver is killed at this point of the sandbox's start; `is_inside` is true if the interface
/// is in the pod by then.
async fn waits_with_own_users(
    plane: &ControlPlane,
    node: &str,
    point: &str,
    is_inside: bool,
) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(&[&NRI[..], &["--kill-at", point]].concat()).await?;
        user::create_with_own_users(scope, machine).await?;
        user::is_told(scope, "/run/never/").await?;
        assert_eq!(shell("ip link show rail0").is_err(), is_inside, "{point}");
        let events = pods::events(scope, "user").await?;
        assert!(!events.iter().any(|event| event.starts_with("Started")), "{events:?}");
        machine.kill_driver();
        machine.start_driver(&NRI).await?;
        user::runs(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

/// containerd restarts, and the driver is killed meanwhile. A running pod keeps its interface, and
/// a pod that is deleted meanwhile returns it.
async fn by_nri_containerd_and_the_driver_reconnect(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "nri-again", &[NIC], async |machine, scope| {
        machine.start_driver(&NRI).await?;
        user::start(scope, machine).await?;
        machine.restart_containerd().await?;
        user::has_its_interface(scope, machine).await?;
        machine.kill_containerd();
        machine.kill_driver();
        machine.start_driver(&NRI).await?;
        machine.restart_containerd().await?;
        user::has_its_interface(scope, machine).await?;
        pods::delete(scope, "user").await?;
        machine.wait_until_clean().await?;
        // New pods can be attached again.
        pods::delete_claim(scope, "user").await?;
        user::start(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

/// An operator changes the flag under pods that run.
async fn running_pods_survive_a_change_of_the_attach_mode(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "nri-change", &[NIC], async |machine, scope| {
        for (first, second) in [(&[][..], &NRI[..]), (&NRI, &[])] {
            machine.start_driver(first).await?;
            user::start(scope, machine).await?;
            machine.kill_driver();
            machine.start_driver(second).await?;
            user::has_its_interface(scope, machine).await?;
            pods::delete(scope, "user").await?;
            machine.wait_until_clean().await?;
            machine.kill_driver();
            pods::delete_claim(scope, "user").await?;
        }
        Ok(())
    })
    .await
}

/// Another NIC, for another pod.
const OTHER: Nic = Nic { address: "0202:00:00.0", link: "rail1" };

/// The runtime would disconnect a plugin that takes as long as a DHCP server may, and every pod of
/// the node waits for a plugin's response. Therefore only the pod itself waits, in the hook.
async fn a_pod_that_waits_for_dhcp_delays_no_other(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "nri-dhcp", &[NIC, OTHER], async |machine, scope| {
        machine.start_driver(&NRI).await?;
        let leasing = json!({"interface": {"name": "net1", "dhcp": true}});
        user::create(scope, machine, Some(leasing)).await?;
        eventually(pods::POD, async || {
            let is_away = shell("ip link show rail0").is_err();
            Ok(Check::that(is_away, || "the interface is not in the pod".to_owned()))
        })
        .await?;
        // No server answers that pod, and others come and go.
        let (node, device) = (machine.name.as_str(), OTHER.device());
        let addresses = json!({"interface": {"name": "net1", "addresses": ["192.168.8.5/24"]}});
        pods::allocated_claim(scope, "other", node, &device, Some(addresses)).await?;
        let claim = json!({"resourceClaimName": "other"});
        pods::create_bound(scope, pods::pod("other", node, claim)?, node).await?;
        pods::running(scope, "other").await?;
        let told = pods::told(scope, machine, "other").await?;
        assert!(told.contains("net1 inet 192.168.8.5/24"), "{told}");
        pods::delete(scope, "other").await?;
        let waiting = pods::events(scope, "user").await?;
        assert!(!waiting.iter().any(|event| event.starts_with("Started")), "{waiting:?}");

        let _server = Server::offering(&plane, ["10.66.0.50", "10.66.0.60"], 600)?;
        pods::running(scope, "user").await?;
        let told = pods::told(scope, machine, "user").await?;
        assert!(told.contains("net1 inet 10.66.0.5"), "{told}");
        let driver = machine.driver().context("it runs")?.tail(1000);
        assert!(!driver.contains("closed the connection"), "{driver}");
        pods::delete(scope, "user").await?;
        shell("ip addr del 10.66.0.1/24 dev rail0-peer").map(drop)
    })
    .await
}
