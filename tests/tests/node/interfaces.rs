//! Interfaces into a pod and back: a veth pair's end stands for a NIC's
//! interface. The scheduler's part is written by the test, since a planted
//! machine has no kernel that would tell the driver of its interfaces.

use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    floor::Test,
    gb300,
    node::{
        Machine, Nic,
        links::{self, shell},
        pods,
    },
    with_scope,
};

use super::rdma::{dies, nothing_left, told};

pub(crate) const NIC: Nic = Nic { address: "0201:00:00.0", link: "rail0" };

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        an_interface_goes_in_with_its_configuration_and_comes_back_as_it_was,
        a_failure_to_attach_stops_the_container_and_is_undone,
        what_cannot_be_prepared_is_told_on_the_pod,
        the_interface_comes_back_after_the_driver_was_killed,
        wherever_the_driver_dies_it_goes_on,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// A pair of links with all that the host must have again.
pub(crate) fn make_link() -> anyhow::Result<()> {
    // What a test that failed has left.
    let _ = remove_link();
    for command in [
        "ip link add rail0 type veth peer name rail0-peer",
        "ip link set rail0 address 02:00:00:00:aa:01 mtu 9000",
        "ip addr add 10.7.0.1/24 brd + dev rail0",
        "ip addr add 10.7.1.1/24 dev rail0 label rail0:1",
        "ip addr add fd07::1/64 dev rail0 nodad",
        "ip link set rail0 up",
        "ip link set rail0-peer up",
        "ip route add 10.70.0.0/16 via 10.7.0.254 dev rail0 metric 77",
        "ip route add 10.71.0.0/16 via 10.7.0.254 dev rail0 table 700",
        "ip -6 route add fd70::/32 via fd07::fe dev rail0",
    ] {
        shell(command)?;
    }
    Ok(())
}

pub(crate) fn remove_link() -> anyhow::Result<()> {
    shell("ip link del rail0-peer").map(drop)
}

pub(crate) fn parameters() -> Value {
    json!({
        "interface": {
            "name": "net1", "mtu": 4321, "hardwareAddr": "02:00:00:00:bb:01",
            "addresses": ["192.168.7.5/24", "fd77::5/64"]
        },
        "routes": [
            {"destination": "172.20.0.0/16", "gateway": "192.168.7.254"},
            {"destination": "172.21.0.0/16", "scope": 253}
        ],
        "rules": [{"priority": 3000, "source": "192.168.7.0/24", "table": 254}],
        "neighbors": [{"destination": "192.168.7.254", "hardwareAddr": "02:00:00:00:cc:01"}]
    })
}

pub(crate) async fn pod_with(
    scope: &Scope,
    machine: &Machine,
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    scope.apply_file(&gb300::file("device-classes.yaml")).await?;
    let (node, claim) = (machine.name.as_str(), json!({"resourceClaimName": "user"}));
    pods::allocated_claim(scope, "user", node, &NIC.device(), parameters).await?;
    pods::create_bound(scope, pods::pod("user", node, claim)?, node).await
}

pub(crate) async fn comes_back(machine: &Machine, before: &Value) -> anyhow::Result<()> {
    nothing_left(machine).await?;
    // The pod's own network, which the CNI plugin made, is not the host's state.
    let after = eventually(pods::POD, async || {
        let after = without_pods(links::state()?);
        let is_same = after == *before;
        let status = format!("{}", difference(before, &after));
        Ok(if is_same { Check::Done(after) } else { Check::NotYet(status) })
    })
    .await?;
    assert_eq!(&after, before);
    Ok(())
}

/// Without what the CNI plugin has made.
pub(crate) fn without_pods(mut state: Value) -> Value {
    let of_pods = |item: &Value| {
        ["ifname", "dev"].iter().any(|field| {
            item[field].as_str().is_some_and(|name| name == "pods0" || name.starts_with("veth"))
        })
    };
    for part in ["addresses", "routes", "routes6", "rules"] {
        if let Some(items) = state[part].as_array_mut() {
            items.retain(|item| !of_pods(item));
        }
    }
    state
}

/// What is missing, and what is more.
pub(crate) fn difference(before: &Value, after: &Value) -> String {
    let mut text = String::new();
    for part in ["addresses", "routes", "routes6", "rules"] {
        let items = |value: &Value| value[part].as_array().cloned().unwrap_or_default();
        for (sign, one, other) in [("-", before, after), ("+", after, before)] {
            let others = items(other);
            for item in items(one).iter().filter(|item| !others.contains(item)) {
                text.push_str(&format!("{sign} {part}: {item}\n"));
            }
        }
    }
    text
}

async fn an_interface_goes_in_with_its_configuration_and_comes_back_as_it_was(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    goes_in_and_comes_back(&plane, "move", &[]).await
}

/// The same with any flags of the driver.
pub(crate) async fn goes_in_and_comes_back(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(plane, node, &[NIC]).await?;
    machine.start_driver(flags).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(parameters())).await?;
        pods::running(scope, "user").await?;
        let told = told(&machine, scope, "user").await?;
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
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

async fn a_failure_to_attach_stops_the_container_and_is_undone(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    fails_and_is_undone(&plane, "fail", &[]).await
}

/// The same with any flags of the driver.
pub(crate) async fn fails_and_is_undone(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(plane, node, &[NIC]).await?;
    machine.start_driver(flags).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        // No address of the pod is in the gateway's network.
        let unreachable = json!({
            "interface": {"name": "net1", "addresses": ["192.168.7.5/24"]},
            "routes": [{"destination": "172.20.0.0/16", "gateway": "10.250.0.1"}]
        });
        pod_with(scope, &machine, Some(unreachable)).await?;
        let said = eventually(pods::POD, async || {
            let events = pods::events(scope, "user").await?;
            let failure = events.iter().find(|event| event.contains("failed to add route"));
            Ok(failure.map_or_else(
                || Check::NotYet(format!("{events:?}")),
                |failure| Check::Done(failure.clone()),
            ))
        })
        .await?;
        assert!(
            said.contains("interface `net1`: failed to add route to `172.20.0.0/16`"),
            "{said}"
        );
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

/// By the driver itself, once, beside what the kubelet says at each of its tries.
async fn what_cannot_be_prepared_is_told_on_the_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(&plane, "told", &[NIC]).await?;
    machine.start_driver(&[]).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        pod_with(scope, &machine, Some(json!({"interface": {"mtu": 7}}))).await?;
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
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

async fn the_interface_comes_back_after_the_driver_was_killed(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    comes_back_after_a_kill(&plane, "killed", &[]).await
}

/// The same with any flags of the driver.
pub(crate) async fn comes_back_after_a_kill(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(plane, node, &[NIC]).await?;
    machine.start_driver(flags).await?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        // Without a configuration the pod has the host's addresses and routes.
        pod_with(scope, &machine, None).await?;
        pods::running(scope, "user").await?;
        let told = told(&machine, scope, "user").await?;
        for line in ["inet 10.7.0.1/24", "inet6 fd07::1/64", "ROUTE 10.70.0.0/16 via 10.7.0.254"] {
            assert!(told.contains(line), "`{line}` is not in:\n{told}");
        }
        machine.kill_driver();
        machine.start_driver(flags).await?;
        pods::delete(scope, "user").await?;
        comes_back(&machine, &before).await
    })
    .await?;
    remove_link()
}

/// The points at which a driver built with the feature `faults` can be killed:
/// one on the way in and one on the way out for each round.
///
/// On the way out those after the interface is back. Before, the driver alone
/// keeps the pod's namespace alive, and a veth ends with it, where the kernel
/// gives a device of the machine back; `rdma` has those points.
const FAULTS: [(&str, &str); 6] = [
    ("prepare:checkpoint:before", "unprepare:links:after"),
    ("prepare:checkpoint:after", "unprepare:files:after"),
    ("prepare:files:before", "unprepare:done"),
    ("prepare:files:between", "unprepare:links:after"),
    ("prepare:cdi:after", "unprepare:files:after"),
    ("prepare:done", "unprepare:done"),
];

/// Killed before or after any effect and started again, the driver ends with a
/// pod that runs, and with a host that has everything back.
async fn wherever_the_driver_dies_it_goes_on(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    dies_and_goes_on(&plane, "crash", &[], &FAULTS).await
}

/// The same with any flags of the driver, at these points.
pub(crate) async fn dies_and_goes_on(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
    faults: &[(&str, &str)],
) -> anyhow::Result<()> {
    make_link()?;
    let mut machine = Machine::start(plane, node, &[NIC]).await?;
    let before = without_pods(links::state()?);
    let with = |point| [flags, &["--kill-at", point]].concat();
    for (on_the_way_in, on_the_way_out) in faults {
        machine.start_driver(&with(on_the_way_in)).await?;
        with_scope(plane.client(), async |scope| {
            pod_with(scope, &machine, Some(parameters())).await?;
            dies(&machine, on_the_way_in).await?;
            // It undoes first what it left, past points of the way out.
            machine.start_driver(flags).await?;
            pods::running(scope, "user").await?;
            machine.kill_driver();
            machine.start_driver(&with(on_the_way_out)).await?;
            pods::delete(scope, "user").await?;
            dies(&machine, on_the_way_out).await?;
            machine.start_driver(flags).await?;
            comes_back(&machine, &before).await
        })
        .await
        .with_context(|| format!("killed at {on_the_way_in} and {on_the_way_out}"))?;
        machine.kill_driver();
    }
    remove_link()
}
