//! Realistic hosts: they reboot and renumber their devices, and have several default routes,
//! addresses from DHCP, bonds and bridges, and pods that may change their own network. The test
//! acts as kubelet and runtime.

use std::{fs, sync::Arc};

use anyhow::Context;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, eventually,
    node::{
        Machine,
        links::{self, shell},
        plugin::{self, Sandbox},
        pods, with_played_machine,
    },
    suite::Test,
};

use super::user::NIC;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        after_a_reboot_a_container_gets_the_numbers_of_that_boot,
        an_interface_that_its_pod_renames_comes_back,
        a_forged_interface_stays_in_the_pod,
        another_interface_with_the_same_name_is_not_used,
        a_second_default_route_does_not_make_an_uplink,
        leased_addresses_go_to_the_pod_and_are_not_restored,
        a_member_of_a_bridge_stays_with_the_host,
        unrestorable_settings_block_no_pod,
        a_virtual_interface_goes_into_a_pod_and_comes_back,
        a_rail_keeps_its_rules_and_neighbours_in_the_pod,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// The InfiniBand NIC of the planted machine whose RDMA device is `mlx5_0`.
const INFINIBAND: &str = "pci-0101-00-00-0";

/// Names and minor numbers of a claim's verbs devices, as the runtime gets them.
fn verbs(machine: &Machine, uid: &str) -> anyhow::Result<Vec<(String, u32)>> {
    let spec: Value = serde_json::from_slice(&fs::read(machine.cdi_spec(uid))?)?;
    let devices = spec["devices"].as_array().context("a list of devices")?;
    let nodes = devices.iter().filter_map(|it| it["containerEdits"]["deviceNodes"].as_array());
    let node = |node: &Value| {
        let name = node["path"].as_str()?.strip_prefix("/dev/infiniband/")?;
        let minor = u32::try_from(node["minor"].as_u64()?).ok()?;
        name.starts_with("uverbs").then(|| (name.to_owned(), minor))
    };
    Ok(nodes.flatten().filter_map(node).collect())
}

async fn after_a_reboot_a_container_gets_the_numbers_of_that_boot(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "numbers", &[], async |machine, scope| {
        let [null, zero] = [3, 5];
        let is = |minor: u32| vec![("uverbs0".to_owned(), minor)];
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), INFINIBAND];
        let claim = plugin::claim(scope, "numbers", on, None).await?;
        let devices = plugin::prepare(machine, &claim).await.done()?;
        assert_eq!(verbs(machine, &claim.uid)?, is(null));

        machine.reboot()?;
        machine.renumber("uverbs0", zero)?;
        for point in ["forget:files:before", "forget:files:between", "forget:files:after"] {
            machine.spawn_driver(&["--kill-at", point])?;
            eventually(plugin::SOON, async || {
                let has_ended = machine.driver_has_ended();
                Ok(Check::that(has_ended, || format!("`{point}` is not reached")))
            })
            .await?;
        }
        machine.start_driver(&[]).await?;
        machine.nothing_left().context("of the earlier boot")?;
        assert_eq!(plugin::prepare(machine, &claim).await.done()?, devices);
        assert_eq!(verbs(machine, &claim.uid)?, is(zero));

        // Within one boot, the plan stays the same.
        machine.kill_driver();
        machine.start_driver(&[]).await?;
        assert_eq!(verbs(machine, &claim.uid)?, is(zero));

        plugin::unprepare(machine, &claim).await.done()
    })
    .await
}

/// A pod with the capability `NET_ADMIN` may do this.
async fn an_interface_that_its_pod_renames_comes_back(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "renamed", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        let parameters = json!({"interface": {"name": "net1", "addresses": ["192.168.7.5/24"]}});
        let claim = plugin::claim(scope, "renamed", on, Some(parameters)).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("renamed")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        for name in ["first", "second"] {
            sandbox.ip("link set net1 down")?;
            sandbox.ip(&format!("link set net1 name {name}"))?;
            // Another container of the pod starts. The interface is there, under its current name.
            plugin::starts(machine, &claim, &sandbox).await?;
            assert!(sandbox.ip(&format!("-o addr show {name}"))?.contains("192.168.7.5/24"));
            sandbox.ip(&format!("link set {name} down"))?;
            sandbox.ip(&format!("link set {name} name net1"))?;
        }
        sandbox.ip("link set net1 down")?;
        sandbox.ip("link set net1 name other")?;
        // Its network still exists, as with a pod that is being deleted.
        plugin::unprepare(machine, &claim).await.done()?;
        assert!(shell("ip link show rail0").is_ok(), "it is the host's again");
        sandbox.close()
    })
    .await
}

async fn a_forged_interface_stays_in_the_pod(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "forged", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim =
            plugin::claim(scope, "forged", on, Some(json!({"interface": {"name": "net1"}})))
                .await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("forged")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        sandbox.ip("link set net1 down")?;
        sandbox.ip("link set net1 name hidden")?;
        sandbox.ip("link add net1 address 02:66:00:00:00:01 type veth peer name peer1")?;
        plugin::unprepare(machine, &claim).await.done()?;
        let rail = shell("ip link show rail0")?;
        assert!(rail.contains("02:00:00:00:aa:00"), "the NIC's own: {rail}");
        assert!(sandbox.ip("link show net1")?.contains("02:66:00:00:00:01"));
        sandbox.close()
    })
    .await
}

/// An interface of the runtime or of a sidecar may already have the name when the container starts.
async fn another_interface_with_the_same_name_is_not_used(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "taken", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim =
            plugin::claim(scope, "taken", on, Some(json!({"interface": {"name": "net1"}}))).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("taken")?;
        sandbox.ip("link add net1 type veth peer name peer1")?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("the pod already has an interface `net1`"), "{error}");
        // Nor if the claim's interface has left the host.
        let elsewhere = Sandbox::open("elsewhere")?;
        shell("ip link set rail0 netns elsewhere")?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("interface `rail0` is not in the host's network"), "{error}");
        // Nor is another interface that has its name on the host by now.
        shell("ip link add rail0 type bridge")?;
        sandbox.ip("link del net1")?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("interface `rail0` is not in the host's network"), "{error}");
        assert!(sandbox.ip("link show net1").is_err());
        shell("ip link del rail0")?;
        elsewhere.ip("link set rail0 netns 1")?;
        plugin::unprepare(machine, &claim).await.done()?;
        elsewhere.close()?;
        sandbox.close()?;
        links::make(&[NIC]).await
    })
    .await
}

async fn a_second_default_route_does_not_make_an_uplink(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "default", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        // The node's own default route has metric 0.
        shell("ip route add default via 10.7.0.254 dev rail0 metric 500")?;
        let claim = plugin::claim(scope, "default", on, None).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("default")?;
        sandbox.ip("link add eth0 type veth peer name eth0-peer")?;
        sandbox.ip("addr add 10.99.0.2/24 dev eth0")?;
        sandbox.ip("link set eth0 up")?;
        sandbox.ip("link set eth0-peer up")?;
        sandbox.ip("route add default via 10.99.0.1 dev eth0")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let routes = sandbox.ip("route show default")?;
        let own = routes.lines().count() == 1 && routes.contains("via 10.99.0.1 dev eth0");
        assert!(own, "the pod keeps its own: {routes}");
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        let restored = shell("ip route show default dev rail0")?;
        assert!(restored.contains("via 10.7.0.254 metric 500"), "{restored}");
        shell("ip route del default via 10.7.0.254 dev rail0 metric 500")?;

        // A default route of equal or lower cost is one of the node's own.
        shell("ip -6 route add default via fd07::fe dev rail0 metric 10")?;
        let claim = plugin::claim(scope, "uplink", on, None).await?;
        let error = plugin::prepare(machine, &claim).await.refused()?;
        assert!(error.contains("interface `rail0` carries the node's own traffic"), "{error}");
        shell("ip -6 route del default via fd07::fe dev rail0 metric 10").map(drop)
    })
    .await
}

async fn leased_addresses_go_to_the_pod_and_are_not_restored(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "leased", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        shell("ip addr add 10.9.0.5/24 dev rail0 valid_lft 900 preferred_lft 900")?;
        shell("ip route add 10.90.0.0/24 via 10.9.0.1 dev rail0")?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "leased", on, None).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("leased")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let inside = sandbox.ip("-o addr show rail0")?;
        assert!(inside.contains("10.9.0.5/24") && inside.contains("10.7.0.1/24"), "{inside}");
        let routes = sandbox.ip("route")?;
        assert!(routes.contains("10.90.0.0/24 via 10.9.0.1 dev rail0"), "{routes}");
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        let host = shell("ip -o addr show rail0")?;
        assert!(!host.contains("10.9.0.5") && host.contains("10.7.0.1/24"), "{host}");
        Ok(())
    })
    .await
}

async fn a_member_of_a_bridge_stays_with_the_host(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "member", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        shell("ip link add storage0 type bridge")?;
        shell("ip link set rail0 master storage0")?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "member", on, None).await?;
        let error = plugin::prepare(machine, &claim).await.refused()?;
        assert!(error.contains("interface `rail0` belongs to `storage0`"), "{error}");
        shell("ip link set rail0 nomaster")?;
        shell("ip link del storage0")?;
        plugin::prepare(machine, &claim).await.done()?;
        plugin::unprepare(machine, &claim).await.done()
    })
    .await
}

/// The interface is back on the host. Nothing waits for settings that cannot be restored.
async fn unrestorable_settings_block_no_pod(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "lacking", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        // The route has a source address of another interface, which is gone by then.
        shell("ip addr add 10.98.0.1/32 dev lo")?;
        shell("ip route add 10.97.0.0/24 via 10.7.0.254 dev rail0 src 10.98.0.1")?;
        let on = [machine.name.as_str(), &NIC.device()];
        let parameters = json!({"interface": {"name": "net1", "addresses": ["192.168.7.5/24"]}});
        let claim = plugin::claim(scope, "lacking", on, Some(parameters)).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("lacking")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        shell("ip addr del 10.98.0.1/32 dev lo")?;
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        // Everything else is as before, which the end of the test compares.
        let said = pods::node_events(scope, &machine.name, "InterfaceNotRestored");
        let said = said.await?;
        assert!(
            said.contains("interface `rail0`: failed to add route to `10.97.0.0/24`"),
            "{said}"
        );
        Ok(())
    })
    .await
}

/// An interface without a device is a NIC with the name of the interface.
async fn a_virtual_interface_goes_into_a_pod_and_comes_back(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "virtual", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        shell("ip link add lan7 mtu 1400 type veth peer name lan7-peer")?;
        shell("ip link set lan7-peer up")?;
        shell("ip link set lan7 up")?;
        shell("ip addr add 10.55.0.1/24 dev lan7")?;
        let on = [machine.name.as_str(), "lan7"];
        let claim = plugin::claim(scope, "virtual", on, None).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("virtual")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        assert!(sandbox.ip("-o addr show lan7")?.contains("10.55.0.1/24"));
        assert!(shell("ip link show lan7").is_err(), "it is in the pod");
        plugin::unprepare(machine, &claim).await.done()?;
        let home = shell("ip addr show lan7")?;
        assert!(home.contains("10.55.0.1/24") && home.contains("mtu 1400"), "{home}");
        sandbox.close()?;
        shell("ip link del lan7-peer").map(drop)
    })
    .await
}

/// Hosts with RoCE rails have a routing table for each rail, and a rule that leads to it.
async fn a_rail_keeps_its_rules_and_neighbours_in_the_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "rules", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        for line in [
            "rule add from 10.7.0.1 table 700 priority 1700",
            "-6 rule add to fd70::/16 table 700 priority 1701",
            // Without the mark, it would lead all packets there.
            "rule add from 10.7.0.1 fwmark 7 table 700 priority 1702",
            "neigh add 10.7.0.254 lladdr 02:00:00:00:cc:01 dev rail0 nud permanent",
        ] {
            shell(&format!("ip {line}"))?;
        }
        let on = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "rules", on, None).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("rules")?;
        for _ in 0..2 {
            plugin::starts(machine, &claim, &sandbox).await?;
        }
        let rules = sandbox.ip("rule")?;
        assert_eq!(rules.matches("1700:\tfrom 10.7.0.1 lookup 700").count(), 1, "{rules}");
        assert!(!rules.contains("1702:"), "{rules}");
        assert!(sandbox.ip("-6 rule")?.contains("1701:\tfrom all to fd70::/16 lookup 700"));
        let routes = sandbox.ip("route show table 700")?;
        assert!(routes.contains("10.71.0.0/24 via 10.7.0.254 dev rail0"), "{routes}");
        let way = sandbox.ip("route get 10.71.0.9 from 10.7.0.1")?;
        assert!(way.contains("via 10.7.0.254 dev rail0 table 700"), "{way}");
        assert!(sandbox.ip("neigh")?.contains("02:00:00:00:cc:01 PERMANENT"));
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        assert!(shell("ip neigh show dev rail0")?.contains("02:00:00:00:cc:01 PERMANENT"));
        for line in [
            "rule del priority 1700",
            "-6 rule del priority 1701",
            "rule del priority 1702",
            "neigh del 10.7.0.254 dev rail0",
        ] {
            shell(&format!("ip {line}"))?;
        }
        Ok(())
    })
    .await
}
