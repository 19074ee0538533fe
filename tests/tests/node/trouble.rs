//! Failures of a node while pods come and go: a full disk, an unavailable API server, interfaces
//! that vanish. Also 110 pods, of which nothing is left.
//!
//! `$DRANET_CHURN` sets the number of pods (110).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context;
use node_driver::kubelet::{NEEDED, wire::dra_v1::Claim};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, SeededRng, eventually,
    node::{
        Machine, Nic,
        links::{self, shell},
        plugin::{self, Call, Hook, SOON, Sandbox},
        with_played_machine,
    },
    setting,
    suite::Test,
};

use super::{api_partition::ApiPartition, user::NIC};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_full_disk_fails_preparation_and_loses_nothing,
        prepared_claims_work_without_the_api_server,
        a_vanished_interface_blocks_nothing,
        a_second_pod_of_a_claim_is_refused,
        pods_share_a_nic,
        claims_get_unique_addresses_from_a_range,
        a_missing_capability_is_named_and_no_other_is_needed,
        many_pods_leave_nothing_behind,
    ];
    all.into_iter().map(Test::alone).collect()
}

const OTHER: Nic = Nic { address: "0202:00:00.0", link: "rail1" };

async fn claim_on(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    nic: &Nic,
) -> anyhow::Result<Claim> {
    plugin::claim(scope, name, [&machine.name, &nic.device()], None).await
}

/// A separate file system of variable size for the driver's state. It ends with the machine.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        shell(&format!("mount -t tmpfs -o size=2g tmpfs {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Shrinks it to what is in use.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let used = shell(&format!("df --block-size=1 --output=used {}", self.0.display()))?;
        let used = used.lines().last().context("a number")?.trim().to_owned();
        self.resize(&used)
    }

    pub(crate) fn empty(&self) -> anyhow::Result<()> {
        self.resize("2g")
    }

    fn resize(&self, size: &str) -> anyhow::Result<()> {
        shell(&format!("mount -o remount,size={size} {}", self.0.display())).map(drop)
    }
}

async fn a_full_disk_fails_preparation_and_loses_nothing(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "full", &[NIC], async |machine, scope| {
        let disk = Disk::mount(machine.plugin_dir())?;
        machine.start_driver(&[]).await?;
        let claim = claim_on(scope, machine, "full", &NIC).await?;
        disk.fill()?;
        let error = plugin::prepare(machine, &claim).await.refused()?;
        assert!(error.contains("plan.json`: No space left on device"), "{error}");
        machine.nothing_left()?;
        disk.empty()?;
        let devices = plugin::prepare(machine, &claim).await.done()?;

        // The kubelet ends pods to free a full disk.
        disk.fill()?;
        plugin::unprepare(machine, &claim).await.done()?;
        machine.nothing_left()?;
        machine.kill_driver();
        machine.start_driver(&[]).await?;
        disk.empty()?;
        assert_eq!(plugin::prepare(machine, &claim).await.done()?, devices);
        plugin::unprepare(machine, &claim).await.done()
    })
    .await
}

async fn prepared_claims_work_without_the_api_server(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "away", &[NIC, OTHER], async |machine, scope| {
        let partition = ApiPartition::proxy(&plane).await?;
        machine.use_kubeconfig(partition.kubeconfig(&plane)?);
        machine.start_driver(&[]).await?;
        let known = claim_on(scope, machine, "known", &NIC).await?;
        let new = claim_on(scope, machine, "new", &OTHER).await?;
        let devices = plugin::prepare(machine, &known).await.done()?;

        partition.begin();
        assert_eq!(plugin::prepare(machine, &known).await.done()?, devices);
        // A driver that starts meanwhile does not need the server for known claims either.
        machine.kill_driver();
        machine.start_driver(&[]).await?;
        assert_eq!(plugin::prepare(machine, &known).await.done()?, devices);
        let sandbox = Sandbox::open("known")?;
        plugin::starts(machine, &known, &sandbox).await?;
        let error = plugin::prepare(machine, &new).await.refused()?;
        let name = format!("failed to get claim `{}/new`", scope.namespace());
        assert!(error.starts_with(&name), "{error}");
        plugin::unprepare(machine, &known).await.done()?;
        sandbox.close()?;

        partition.end();
        eventually(SOON, async || {
            Ok(match plugin::prepare(machine, &new).await {
                Call::Done(_) => Check::Done(()),
                other => Check::NotYet(format!("{other:?}")),
            })
        })
        .await?;
        eventually(SOON, async || {
            let log = machine.driver().context("it runs")?.tail(50);
            let published = ["Published", "Nothing to write"].iter().any(|it| log.contains(it));
            Ok(Check::that(published, || format!("nothing published:\n{log}")))
        })
        .await?;
        plugin::unprepare(machine, &new).await.done()
    })
    .await
}

async fn a_vanished_interface_blocks_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "vanish", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let claim = claim_on(scope, machine, "vanish", &NIC).await?;
        let sandbox = Sandbox::open("vanish")?;
        plugin::prepare(machine, &claim).await.done()?;
        links::remove(NIC.link)?;
        let error = plugin::fails_to_start(machine, &claim, &sandbox).await?;
        assert!(error.contains("`rail0` is not in the host's network namespace"), "{error}");
        plugin::unprepare(machine, &claim).await.done()?;
        machine.nothing_left()?;
        let error = plugin::prepare(machine, &claim).await.refused()?;
        assert!(error.contains("has no interface in the host's network namespace"), "{error}");

        links::make(&[NIC]).await?;
        plugin::prepare(machine, &claim).await.done()?;
        plugin::starts(machine, &claim, &sandbox).await?;
        sandbox.ip("link del rail0")?;
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        // Gives the machine an interface again, as at the start.
        links::make(&[NIC]).await
    })
    .await
}

/// The kubelet prepares a claim of several pods once, so only the hook sees the second pod. When
/// the first is gone, for example because its sandbox was replaced, the interface moves on.
async fn a_second_pod_of_a_claim_is_refused(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "second", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let claim = claim_on(scope, machine, "second", &NIC).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let (one, two) = (Sandbox::open("one")?, Sandbox::open("two")?);
        plugin::starts(machine, &claim, &one).await?;
        let error = plugin::fails_to_start(machine, &claim, &two).await?;
        assert!(error.contains("are in another running pod"), "{error}");
        assert!(one.addresses()?.contains("rail0"), "it stays where it was");

        one.close()?;
        plugin::starts(machine, &claim, &two).await?;
        assert!(two.addresses()?.contains("rail0"), "it moves on");
        plugin::unprepare(machine, &claim).await.done()?;
        machine.nothing_left()?;
        two.close()
    })
    .await
}

/// Two pods on one NIC, and two on another, each with an interface on top of the NIC's. If the
/// kernel has no ipvlan, the pod gets an error that says so, and nothing is left.
async fn pods_share_a_nic(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "shared", &[NIC, OTHER], async |machine, scope| {
        machine.start_driver(&[]).await?;
        for (kind, nic, number) in [("macvlan", NIC, 1), ("ipvlan", OTHER, 2)] {
            let mut pods = Vec::new();
            let has_kind = kernel_has(kind, nic.link);
            for host in 1..3 {
                let on = [&machine.name, &nic.device(), &format!("0000000{host}-{SHARE}")];
                let parameters = json!({"interface": {
                    "name": "net1", "type": kind, "addresses": [format!("10.9.{number}.{host}/24")]
                }});
                let name = format!("{kind}-{host}");
                let claim = plugin::share(scope, &name, on.map(String::as_str), parameters).await?;
                plugin::prepare(machine, &claim).await.done()?;
                let sandbox = Sandbox::open(&name)?;
                // The second container of a pod finds it there.
                for _ in 0..2 {
                    let started = plugin::start_container(machine, &claim, &sandbox, None).await?;
                    if has_kind {
                        assert_eq!(started, Hook::Attached);
                    } else {
                        let Hook::Failed(error) = started else { anyhow::bail!("it started") };
                        let verb = format!("failed to create {kind} `net1` on it");
                        assert!(error.contains(&verb), "{error}");
                    }
                }
                pods.push((claim, sandbox));
            }
            if has_kind {
                let link = pods[0].1.ip("-d link show net1")?;
                assert!(link.contains(kind), "{link}");
                assert!(pods[0].1.reaches(&format!("10.9.{number}.2")), "one reaches the other");
            }
            shell(&format!("ip link show {}", nic.link)).context("the NIC's stays")?;
            for (claim, sandbox) in pods {
                plugin::unprepare(machine, &claim).await.done()?;
                assert!(sandbox.ip("link show net1").is_err(), "it is removed");
                sandbox.close()?;
            }
        }
        Ok(())
    })
    .await
}

/// Returns true if the kernel has interfaces of this kind.
fn kernel_has(kind: &str, link: &str) -> bool {
    let made = shell(&format!("ip link add probe0 link {link} type {kind}"));
    let _ = shell("ip link del probe0");
    made.is_ok()
}

/// A range with three free addresses besides its gateways, and four claims.
async fn claims_get_unique_addresses_from_a_range(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "range", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let routes = [4, 5, 6].map(|host| {
            let destination = format!("10.{host}.0.0/16");
            json!({"destination": destination, "gateway": format!("10.9.3.{host}")})
        });
        let interface = json!({"name": "net1", "addressRange": "10.9.3.0/29"});
        let parameters = json!({"interface": interface, "routes": routes});
        let mut claims = Vec::new();
        for share in 1..5 {
            let on = [&machine.name, &NIC.device(), &format!("0000000{share}-{SHARE}")];
            let name = format!("range-{share}");
            let on = on.map(String::as_str);
            claims.push(plugin::share(scope, &name, on, parameters.clone()).await?);
        }
        let mut seen = BTreeSet::new();
        for claim in &claims[..3] {
            plugin::prepare(machine, claim).await.done()?;
            let sandbox = Sandbox::open(&claim.name)?;
            plugin::starts(machine, claim, &sandbox).await?;
            let inside = sandbox.addresses()?;
            let address = (1..=3).map(|host| format!("10.9.3.{host}/29"));
            let address: Vec<_> = address.filter(|address| inside.contains(address)).collect();
            assert_eq!(address.len(), 1, "{inside}");
            seen.extend(address);
            plugin::unprepare(machine, claim).await.done()?;
            sandbox.close()?;
        }
        assert_eq!(seen.len(), 3, "each its own, until the claim is deleted: {seen:?}");
        let error = plugin::prepare(machine, &claims[3]).await.refused()?;
        assert!(error.contains("no address of `interface.addressRange` is free"), "{error}");
        machine.nothing_left()
    })
    .await
}

/// The rest of a share's UUID.
const SHARE: &str = "0000-4000-8000-000000000000";

async fn a_missing_capability_is_named_and_no_other_is_needed(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "rights", &[NIC], async |machine, scope| {
        let claim = claim_on(scope, machine, "rights", &NIC).await?;
        machine.limit_driver(&["net_admin"]);
        machine.start_driver(&[]).await?;
        let log = machine.driver().context("it runs")?.tail(50);
        assert!(log.contains("A capability is missing"), "{log}");
        assert!(log.contains("SYS_ADMIN") && !log.contains("NET_ADMIN"), "{log}");
        machine.kill_driver();

        let needed = NEEDED.map(|needed| needed.name.to_lowercase());
        machine.limit_driver(&needed.each_ref().map(String::as_str));
        machine.start_driver(&[]).await?;
        let sandbox = Sandbox::open("rights")?;
        plugin::prepare(machine, &claim).await.done()?;
        plugin::starts(machine, &claim, &sandbox).await?;
        plugin::unprepare(machine, &claim).await.done()?;
        shell("ip link show rail0").context("it is the host's again")?;
        let log = machine.driver().context("it runs")?.tail(50);
        assert!(!log.contains("A capability is missing"), "{log}");
        sandbox.close()
    })
    .await
}

/// As many as a kubelet allows by default.
const PODS: usize = 110;

async fn many_pods_leave_nothing_behind(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let count = setting("DRANET_CHURN", PODS)?;
    let nics: Vec<Nic> = (0..count).map(nic).collect();
    with_played_machine(&plane, "churn", &nics, async |machine, scope| {
        machine.start_driver(&[]).await?;
        let mut coming = Vec::new();
        for nic in &nics {
            coming.push(claim_on(scope, machine, nic.link, nic).await?);
        }
        let descriptors = descriptors(machine)?;
        let mut rng = SeededRng::from_environment()?;
        let mut running: Vec<(Claim, Sandbox)> = Vec::new();
        // Nearly all of them run at once before the first of them ends for good.
        while !coming.is_empty() || !running.is_empty() {
            if !coming.is_empty() && (running.is_empty() || !rng.one_in(5)) {
                let claim = coming.swap_remove(rng.index(coming.len()));
                plugin::prepare(machine, &claim).await.done()?;
                let sandbox = Sandbox::open(&claim.name)?;
                plugin::starts(machine, &claim, &sandbox).await?;
                running.push((claim, sandbox));
            } else {
                let (claim, sandbox) = running.swap_remove(rng.index(running.len()));
                plugin::unprepare(machine, &claim).await.done()?;
                sandbox.close()?;
            }
            let held = namespaces(machine)?;
            anyhow::ensure!(held == running.len(), "{held} namespaces for {} pods", running.len());
        }
        machine.nothing_left()?;
        eventually(SOON, async || {
            let now = self::descriptors(machine)?;
            Ok(Check::that(now <= descriptors, || format!("{now} descriptors, not {descriptors}")))
        })
        .await
    })
    .await
}

/// The leaked names are few and needed to the end.
fn nic(number: usize) -> Nic {
    let address = format!("03{number:02x}:00:00.0").leak();
    Nic { address, link: format!("pod{number}").leak() }
}

/// The open files of the driver, by kind.
fn open(machine: &Machine) -> anyhow::Result<BTreeMap<String, usize>> {
    let pid = machine.driver().context("the driver runs")?.pid();
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        // A file that was closed meanwhile does not count.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.display().to_string();
        let kind = target.split_once(":[").map_or(target.as_str(), |(kind, _)| kind);
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}

/// Their number, without the few connections to the API server, which come and go.
fn descriptors(machine: &Machine) -> anyhow::Result<usize> {
    let mut open = open(machine)?;
    let sockets = open.remove("socket").unwrap_or_default();
    Ok(open.values().sum::<usize>() + sockets.saturating_sub(SOCKETS))
}

/// Far below one for each pod.
const SOCKETS: usize = 40;

/// Network namespaces of pods that the driver keeps alive.
fn namespaces(machine: &Machine) -> anyhow::Result<usize> {
    Ok(open(machine)?.get("net").copied().unwrap_or_default())
}
