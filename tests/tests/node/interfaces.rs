//! Moves interfaces into a pod and back. One end of a veth pair acts as a NIC's interface.

use std::sync::Arc;

use serde_json::json;
use tests::{
    Check, ControlPlane, eventually,
    node::{links::shell, pods, with_machine},
    suite::Test,
};

use super::user::{self, NIC};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        an_interface_goes_in_with_its_configuration_and_comes_back_as_it_was,
        a_failure_to_attach_stops_the_container_and_is_undone,
        preparation_errors_are_events_of_the_pod,
        the_interface_comes_back_after_the_driver_was_killed,
        a_pod_in_a_user_namespace_has_its_interface,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn an_interface_goes_in_with_its_configuration_and_comes_back_as_it_was(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    goes_in_and_comes_back(&plane, "move", &[]).await
}

/// A pod with `hostUsers: false`, whose network belongs to a separate user namespace. runc takes
/// its device nodes from the host's `/dev`, where a planted machine has none.
async fn a_pod_in_a_user_namespace_has_its_interface(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    has_its_interface_with_own_users(&plane, "users", &[]).await
}

/// The same test with any flags of the driver.
pub(crate) async fn has_its_interface_with_own_users(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(flags).await?;
        user::create_with_own_users(scope, machine).await?;
        pods::running(scope, "user").await?;
        let told = pods::told(scope, machine, "user").await?;
        for line in ["net1 inet 192.168.7.5/24", "mtu 4321", "ROUTE 172.20.0.0/16"] {
            assert!(told.contains(line), "`{line}` is not in:\n{told}");
        }
        user::has_its_interface(scope, machine).await?;
        pods::delete(scope, "user").await
    })
    .await
}

/// The same test with any flags of the driver.
pub(crate) async fn goes_in_and_comes_back(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(flags).await?;
        user::create(scope, machine, Some(user::parameters())).await?;
        pods::running(scope, "user").await?;
        let told = pods::told(scope, machine, "user").await?;
        for line in [
            "net1 inet 192.168.7.5/24 brd 192.168.7.255 scope global net1",
            "net1 inet6 fd77::5/64 scope global",
            "mtu 4321",
            "link/ether 02:00:00:00:bb:01",
            "ROUTE 172.20.0.0/16 via 192.168.7.254 dev net1",
            "ROUTE 172.21.0.0/16 dev net1 scope link",
            "\"interface\": \"net1\"",
        ] {
            assert!(told.contains(line), "`{line}` is not in:\n{told}");
        }
        assert!(shell("ip link show rail0").is_err(), "it is in the pod");
        let data = pods::network_data(scope, "user").await?;
        assert_eq!(
            data,
            json!({
                "interfaceName": "net1",
                "hardwareAddress": "02:00:00:00:bb:01",
                "ips": ["192.168.7.5/24", "fd77::5/64"]
            })
        );
        pods::delete(scope, "user").await
    })
    .await
}

async fn a_failure_to_attach_stops_the_container_and_is_undone(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    fails_and_is_undone(&plane, "fail", &[]).await
}

/// The same test with any flags of the driver.
pub(crate) async fn fails_and_is_undone(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(flags).await?;
        // No address of the pod is in the gateway's network.
        let unreachable = json!({
            "interface": {"name": "net1", "addresses": ["192.168.7.5/24"]},
            "routes": [{"destination": "172.20.0.0/16", "gateway": "10.250.0.1"}]
        });
        user::create(scope, machine, Some(unreachable)).await?;
        let said = user::is_told(scope, "failed to add route").await?;
        assert!(
            said.contains("interface `net1`: failed to add route to `172.20.0.0/16`"),
            "{said}"
        );
        pods::delete(scope, "user").await
    })
    .await
}

/// The driver itself reports it once, in addition to the kubelet, which reports each of its
/// attempts.
async fn preparation_errors_are_events_of_the_pod(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "told", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        user::create(scope, machine, Some(json!({"interface": {"mtu": 7}}))).await?;
        let own = |event: &&String| event.starts_with("NICsNotPrepared: ");
        let tries = |events: &[String]| {
            events.iter().filter(|event| event.starts_with("FailedPrepareDynamic")).count()
        };
        let said = eventually(pods::POD, async || {
            let events = pods::events(scope, "user").await?;
            let is_there = events.iter().any(|event| own(&event)) && tries(&events) > 0;
            let status = format!("{events:?}");
            Ok(if is_there { Check::Done(events) } else { Check::NotYet(status) })
        })
        .await?;
        let said: Vec<_> = said.iter().filter(own).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        let claim = format!("claim `{}/user`: device `{}`", scope.namespace(), NIC.device());
        assert!(said[0].contains(&claim) && said[0].contains("mtu"), "{said:?}");
        pods::delete(scope, "user").await
    })
    .await
}

async fn the_interface_comes_back_after_the_driver_was_killed(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    comes_back_after_a_kill(&plane, "killed", &[]).await
}

/// The same test with any flags of the driver.
pub(crate) async fn comes_back_after_a_kill(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    with_machine(plane, node, &[NIC], async |machine, scope| {
        machine.start_driver(flags).await?;
        // Without a configuration the pod has the host's addresses and routes.
        user::create(scope, machine, None).await?;
        pods::running(scope, "user").await?;
        let told = pods::told(scope, machine, "user").await?;
        for line in ["inet 10.7.0.1/24", "inet6 fd07::1/64", "ROUTE 10.70.0.0/24 via 10.7.0.254"] {
            assert!(told.contains(line), "`{line}` is not in:\n{told}");
        }
        machine.kill_driver();
        machine.start_driver(flags).await?;
        pods::delete(scope, "user").await
    })
    .await
}
