//! Settings of a network configuration besides addresses: features of the driver, the host's eBPF
//! programs, an address from DHCP. The test acts as kubelet and runtime; `ethtool`, `ping` and a
//! DHCP server show the result.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use node_driver::kubelet::wire::dra_v1::Claim;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    Check, ControlPlane, Program, Scope, eventually,
    node::{
        Machine,
        links::shell,
        plugin::{self, SOON, Sandbox},
        pods, with_played_machine,
    },
    process::Process,
    suite::Test,
};

use super::{programs, user::NIC};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        features_apply_in_the_pod_and_are_restored_on_the_host,
        features_that_an_interface_cannot_have_are_named,
        the_hosts_programs_stay_behind,
        an_address_from_dhcp_is_renewed_and_released,
        routes_of_a_dhcp_server_take_no_traffic_of_the_pod,
        without_a_dhcp_server_the_container_does_not_start,
        the_claims_status_follows_the_lease,
        with_nri_the_hook_does_dhcp_and_kernel_settings,
        guarded_fields_need_an_allowed_namespace,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// A claim on the NIC with these parameters, prepared.
async fn prepared(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    parameters: Value,
) -> anyhow::Result<Claim> {
    let claim = on_nic(scope, machine, name, parameters).await?;
    plugin::prepare(machine, &claim).await.done()?;
    Ok(claim)
}

async fn on_nic(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    parameters: Value,
) -> anyhow::Result<Claim> {
    plugin::claim(scope, name, [&machine.name, &NIC.device()], Some(parameters)).await
}

/// The output of `ethtool -k`, one feature per line.
fn features(sandbox: Option<&Sandbox>, link: &str) -> anyhow::Result<String> {
    let command = format!("ethtool -k {link}");
    sandbox.map_or_else(|| shell(&command), |sandbox| sandbox.run(&command))
}

async fn features_apply_in_the_pod_and_are_restored_on_the_host(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "features", &[NIC], async |machine, scope| {
        // Not the kernel's default: the host's own setting must be restored.
        shell("ethtool -K rail0 tx-udp-segmentation off")?;
        let before = features(None, "rail0")?;
        machine.start_driver(&[]).await?;
        let parameters = json!({
            "interface": {"name": "net1"},
            "ethtool": {"features": {
                "tso": false, "rx-gro": true, "tx-udp-segmentation": true, "highdma": true
            }}
        });
        let claim = prepared(scope, machine, "features", parameters).await?;
        let sandbox = Sandbox::open("features")?;
        // The second container of a pod finds the same.
        for _ in 0..2 {
            plugin::starts(machine, &claim, &sandbox).await?;
            let inside = features(Some(&sandbox), "net1")?;
            for line in [
                "tcp-segmentation-offload: off",
                "tx-tcp6-segmentation: off",
                "generic-receive-offload: on",
                "tx-udp-segmentation: on",
            ] {
                assert!(inside.contains(line), "`{line}` is not in:\n{inside}");
            }
        }
        // Another driver process brings it back.
        machine.kill_driver();
        machine.start_driver(&[]).await?;
        plugin::unprepare(machine, &claim).await.done()?;
        assert_eq!(features(None, "rail0")?, before);
        sandbox.close()
    })
    .await
}

async fn features_that_an_interface_cannot_have_are_named(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "fixed", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        for (name, ethtool, said) in [
            (
                "unknown",
                json!({"features": {"warp": true}}),
                "names `warp`, which no interface has",
            ),
            (
                "fixed",
                json!({"features": {"lro": true}}),
                "`lro` on, which interface `rail0` cannot",
            ),
            (
                "flag",
                json!({"privateFlags": {"turbo": true}}),
                "names `turbo`, which interface `rail0`",
            ),
        ] {
            let parameters = json!({ "ethtool": ethtool });
            let claim = on_nic(scope, machine, name, parameters).await?;
            let error = plugin::prepare(machine, &claim).await.refused()?;
            assert!(error.contains(said), "{error}");
            let has = ["`rx-gro`", "it supports none"];
            assert!(has.iter().any(|has| error.contains(has)), "what it has instead: {error}");
        }
        // A feature that the kernel keeps unchanged is found only when it is set: without checksums
        // there is no segmentation. Then nothing is applied.
        let before = features(None, "rail0")?;
        let kept = json!({"ethtool": {"features": {"tx": false, "tso": true}}});
        let claim = prepared(scope, machine, "kept", kept).await?;
        let sandbox = Sandbox::open("kept")?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        let expected = "-segmentation` on, but interface `rail0` did not change it";
        assert!(error.contains(expected), "{error}");
        assert_eq!(features(None, "rail0")?, before, "it is back, and as it was");
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()
    })
    .await
}

async fn the_hosts_programs_stay_behind(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "programs", &[NIC], async |machine, scope| {
        shell("ip addr add 10.66.1.1/24 dev rail0-peer")?;
        let links = programs::attach("rail0")?;
        assert_eq!(programs::count("rail0")?, 2);
        shell("tc qdisc add dev rail0 clsact")?;
        machine.start_driver(&[]).await?;
        for (name, is_off) in [("kept", false), ("off", true)] {
            let parameters = json!({"interface": {
                "name": "net1", "addresses": ["10.66.1.2/24"], "disableEbpfPrograms": is_off
            }});
            let claim = prepared(scope, machine, name, parameters).await?;
            let sandbox = Sandbox::open(name)?;
            plugin::starts(machine, &claim, &sandbox).await?;
            assert_eq!(sandbox.reaches("10.66.1.1"), is_off, "each program drops everything");
            let inside = sandbox.ip("-d link show net1")?;
            assert_eq!(inside.contains("xdp"), !is_off, "{inside}");
            assert!(!sandbox.run("tc qdisc show dev net1")?.contains("clsact"));
            plugin::unprepare(machine, &claim).await.done()?;
            assert_eq!(programs::count("rail0")?, if is_off { 0 } else { 2 });
            sandbox.close()?;
        }
        drop(links);
        shell("ip addr del 10.66.1.1/24 dev rail0-peer").map(drop)
    })
    .await
}

/// A DHCP server on the other end of the link.
pub(crate) struct Server {
    folder: TempDir,
    process: Process,
}

impl Server {
    fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        Self::offering(plane, RANGE, LEASE)
    }

    /// Starts one that gives addresses of this range, for this number of seconds.
    pub(crate) fn offering(
        plane: &ControlPlane,
        range: [&str; 2],
        lease: u32,
    ) -> anyhow::Result<Self> {
        Self::routing(plane, range, lease, &["172.30.0.0/16"])
    }

    /// Starts one that gives these routes too.
    fn routing(
        plane: &ControlPlane,
        [first, last]: [&str; 2],
        lease: u32,
        routes: &[&str],
    ) -> anyhow::Result<Self> {
        shell("ip addr replace 10.66.0.1/24 dev rail0-peer")?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let routes: Vec<_> = routes.iter().map(|route| format!("{route} 10.66.0.1")).collect();
        fs::write(path("leases"), "")?;
        fs::write(
            path("conf"),
            format!(
                "start {first}\nend {last}\ninterface rail0-peer\n\
                 lease_file {}\npidfile {}\nmin_lease 1\noption lease {lease}\n\
                 option subnet 255.255.255.0\noption router 10.66.0.1\noption mtu 1400\n\
                 option staticroutes {}\n",
                path("leases"),
                path("pid"),
                routes.join(", "),
            ),
        )?;
        let process = Program::new(Path::new("/bin/busybox"), plane.logs())
            .named("udhcpd")
            .args(["udhcpd".to_owned(), "-f".to_owned(), path("conf")])
            .spawn()?;
        Ok(Self { folder, process })
    }

    /// The number of acknowledgements that it has sent.
    fn given(&self) -> usize {
        self.process.tail(200).lines().filter(|line| line.contains("sending ACK")).count()
    }

    /// Waits until it has this number of leases.
    async fn has(&self, count: usize) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let leases = self.leases()?;
            Ok(Check::that(leases.len() == count, || format!("the server has {leases:?}")))
        })
        .await
    }

    /// Its leases that have not ended.
    fn leases(&self) -> anyhow::Result<Vec<String>> {
        shell(&format!("kill -USR1 {}", self.process.pid()))?;
        let file = self.folder.path().join("leases");
        let table = shell(&format!("busybox dumpleases -r -f {}", file.display()));
        // The file may be in the middle of a write.
        let table = table.unwrap_or_default();
        let lines = table.lines().skip(1).filter(|line| !line.contains("expired"));
        Ok(lines.map(str::to_owned).collect())
    }
}

/// The addresses that it gives.
const RANGE: [&str; 2] = ["10.66.0.50", "10.66.0.60"];

/// The duration of a lease in seconds; it is renewed after half of it.
const LEASE: u32 = 8;

async fn an_address_from_dhcp_is_renewed_and_released(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "dhcp", &[NIC], async |machine, scope| {
        let server = Server::start(&plane)?;
        machine.start_driver(&[]).await?;
        let parameters = json!({"interface": {"name": "net1", "dhcp": true}});
        let claim = prepared(scope, machine, "dhcp", parameters).await?;
        let sandbox = Sandbox::open("dhcp")?;
        for _ in 0..2 {
            plugin::starts(machine, &claim, &sandbox).await?;
        }
        let inside = sandbox.ip("-4 -o addr show net1")?;
        let address = inside.split_whitespace().find(|word| word.starts_with("10.66.0."));
        let address = address.context(inside.clone())?.to_owned();
        assert!(inside.contains("dynamic") && !inside.contains("10.7.0.1"), "{inside}");
        assert!(sandbox.ip("link show net1")?.contains("mtu 1400"));
        let routes = sandbox.ip("route")?;
        assert!(routes.contains("172.30.0.0/16 via 10.66.0.1 dev net1 proto dhcp"), "{routes}");
        assert!(!routes.contains("default"), "{routes}");
        assert!(sandbox.reaches("10.66.0.1"));
        let data = pods::network_data(scope, "dhcp").await?;
        assert_eq!(data["ips"], json!([address]));

        // By the driver, and by the next one, beyond the first lease's end.
        for round in 0..2 {
            let given = server.given();
            eventually(SOON, async || {
                let inside = sandbox.ip("-4 -o addr show net1")?;
                anyhow::ensure!(inside.contains(&address), "round {round}: it ended: {inside}");
                let more = server.given() - given;
                Ok(Check::that(more >= 3, || format!("round {round}: renewed {more} times")))
            })
            .await?;
            machine.kill_driver();
            machine.start_driver(&[]).await?;
        }
        server.has(1).await?;
        plugin::unprepare(machine, &claim).await.done()?;
        server.has(0).await?;
        sandbox.close()?;
        shell("ip addr del 10.66.0.1/24 dev rail0-peer").map(drop)
    })
    .await
}

/// Two halves are as good as a default route, and the cluster's services are in `10.96.0.0/16`.
async fn routes_of_a_dhcp_server_take_no_traffic_of_the_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "greedy", &[NIC], async |machine, scope| {
        let routes = ["0.0.0.0/1", "128.0.0.0/1", "10.96.0.0/24"];
        let _server = Server::routing(&plane, RANGE, LEASE, &routes)?;
        machine.start_driver(&[]).await?;
        let parameters = json!({"interface": {"name": "net1", "dhcp": true}});
        let claim = prepared(scope, machine, "greedy", parameters).await?;
        let sandbox = Sandbox::open("greedy")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let main = sandbox.ip("-4 route show dev net1")?;
        assert!(main.lines().all(|route| route.starts_with("10.66.0.0/24")), "{main}");
        let own = sandbox.ip("-4 route show table all dev net1 proto dhcp")?;
        for route in routes {
            assert!(own.contains(&format!("{route} via 10.66.0.1 table ")), "{route}: {own}");
        }
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        shell("ip addr del 10.66.0.1/24 dev rail0-peer").map(drop)
    })
    .await
}

async fn without_a_dhcp_server_the_container_does_not_start(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "silent", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let parameters = json!({"interface": {"name": "net1", "dhcp": true}});
        let claim = prepared(scope, machine, "silent", parameters).await?;
        let sandbox = Sandbox::open("silent")?;
        let begin = Instant::now();
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("`net1`: no DHCP server has given an address"), "{error}");
        // The runtime ends a hook after 30 s, without a word.
        assert!(begin.elapsed() < Duration::from_secs(25));
        shell("ip link set rail0-peer down")?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("`net1` has no carrier"), "{error}");
        shell("ip link set rail0-peer up")?;
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()
    })
    .await
}

/// The addresses that an interface has from DHCP.
fn leased(sandbox: &Sandbox) -> anyhow::Result<Vec<String>> {
    let inside = sandbox.ip("-4 -o addr show net1")?;
    let words = inside.split_whitespace().filter(|word| word.starts_with("10.66.0."));
    Ok(words.filter(|word| word.contains('/')).map(str::to_owned).collect())
}

/// The address arrives while the driver is down, and changes when the server does not know the
/// first one. Everything else on the interface stays.
async fn the_claims_status_follows_the_lease(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    /// Longer than the test, so that no lease expires.
    const LONG: u32 = 600;
    with_played_machine(&plane, "follows", &[NIC], async |machine, scope| {
        let server = Server::offering(&plane, ["10.66.0.50", "10.66.0.60"], LONG)?;
        machine.start_driver(&[]).await?;
        let parameters = json!({
            "interface": {"name": "net1", "dhcp": true},
            "routes": [{"destination": "172.31.0.0/16", "gateway": "10.66.0.1"}],
            "neighbors": [{"destination": "10.66.0.9", "hardwareAddr": "02:00:00:00:cc:01"}]
        });
        let claim = prepared(scope, machine, "follows", parameters).await?;
        machine.kill_driver();
        let sandbox = Sandbox::open("follows")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let first = leased(&sandbox)?;
        assert_eq!(first.len(), 1, "{first:?}");
        machine.start_driver(&[]).await?;
        assert_eq!(pods::network_data(scope, "follows").await?["ips"], json!(first));

        machine.kill_driver();
        drop(server);
        let server = Server::offering(&plane, ["10.66.0.70", "10.66.0.80"], LONG)?;
        machine.start_driver(&[]).await?;
        let second = eventually(SOON, async || {
            let now = leased(&sandbox)?;
            anyhow::ensure!(!now.is_empty(), "it has no address");
            let is_other = now.len() == 1 && now != first;
            Ok(if is_other { Check::Done(now) } else { Check::NotYet(format!("{now:?}")) })
        })
        .await?;
        let routes = sandbox.ip("route")?;
        for route in ["10.66.0.0/24 dev net1", "172.30.0.0/16 via", "172.31.0.0/16 via"] {
            assert!(routes.contains(route), "{route} is not in:\n{routes}");
        }
        assert!(sandbox.ip("neigh")?.contains("02:00:00:00:cc:01 PERMANENT"));
        assert!(sandbox.reaches("10.66.0.1"));
        eventually(SOON, async || {
            let data = pods::network_data(scope, "follows").await?;
            Ok(Check::that(data["ips"] == json!(second), || format!("the status says {data}")))
        })
        .await?;
        server.has(1).await?;
        plugin::unprepare(machine, &claim).await.done()?;
        server.has(0).await?;
        sandbox.close()?;
        shell("ip addr del 10.66.0.1/24 dev rail0-peer").map(drop)
    })
    .await
}

/// DHCP takes longer than NRI waits, and a container cannot write the kernel's settings.
async fn with_nri_the_hook_does_dhcp_and_kernel_settings(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "beside", &[NIC], async |machine, scope| {
        let server = Server::start(&plane)?;
        machine.start_driver(&["--attach", "nri"]).await?;
        let kernel = json!({"interface": {
            "name": "net1", "addresses": ["10.66.0.7/24", "fd66::7/64"],
            "arpIgnore": 1, "arpAnnounce": 2, "forwarding": true
        }});
        let claim = prepared(scope, machine, "kernel", kernel).await?;
        let sandbox = Sandbox::open("beside")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        for (setting, value) in [
            ("ipv4/conf/net1/arp_ignore", "1"),
            ("ipv4/conf/net1/arp_announce", "2"),
            ("ipv4/conf/net1/forwarding", "1"),
            ("ipv6/conf/net1/forwarding", "1"),
        ] {
            let is = sandbox.run(&format!("cat /proc/sys/net/{setting}"))?;
            assert_eq!(is.trim(), value, "{setting}");
        }
        plugin::unprepare(machine, &claim).await.done()?;
        let leasing = json!({"interface": {"name": "net1", "dhcp": true}});
        let claim = prepared(scope, machine, "leasing", leasing).await?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let address = leased(&sandbox)?;
        assert_eq!(pods::network_data(scope, "leasing").await?["ips"], json!(address));
        plugin::unprepare(machine, &claim).await.done()?;
        server.has(0).await?;
        sandbox.close()?;
        shell("ip addr del 10.66.0.1/24 dev rail0-peer").map(drop)
    })
    .await
}

async fn guarded_fields_need_an_allowed_namespace(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "guarded", &[NIC], async |machine, scope| {
        machine.limit_namespaces(&["net"]);
        machine.start_driver(&[]).await?;
        let interface = json!({"name": "net1", "addressRange": "10.9.3.5/32"});
        let claim = on_nic(scope, machine, "guarded", json!({"interface": interface})).await?;
        let error = plugin::prepare(machine, &claim).await.refused()?;
        let said = "sets `interface.addressRange`, which is allowed only in the namespaces of \
                    --network-namespace (net)";
        assert!(error.contains(said), "{error}");
        let claims: Api<ResourceClaim> = scope.api();
        let status = claims.get("guarded").await?.status.unwrap_or_default();
        assert!(status.devices.is_none(), "no address is kept for it: {:?}", status.devices);

        machine.kill_driver();
        machine.limit_namespaces(&["net", scope.namespace()]);
        machine.start_driver(&[]).await?;
        let sandbox = Sandbox::open("guarded")?;
        plugin::prepare(machine, &claim).await.done()?;
        plugin::starts(machine, &claim, &sandbox).await?;
        let inside = sandbox.addresses()?;
        assert!(inside.contains("10.9.3.5/32"), "{inside}");
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()
    })
    .await
}
