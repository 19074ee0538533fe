//! The driver recovers from being killed anywhere, and nothing is lost or left. Claims go through
//! their lives while the driver and the hook are killed at fault points and at any moment.
//!
//! `$DRANET_CRASHES` sets the minimum number of crashes (100, by hook and by NRI), `$DRANET_SEED`
//! sets the seed.

mod mortal;

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use mortal::{ANY_MOMENT, Mortal};
use node_driver::kubelet::wire::dra_v1::Claim;
use serde_json::json;
use tests::{
    ControlPlane, Scope, SeededRng,
    node::{
        Machine, Nic,
        nri::Runtime,
        plugin::{self, Call, Hook, Sandbox},
        pods, with_played_machine,
    },
    setting,
    suite::{Test, report},
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        the_driver_recovers_from_being_killed_anywhere,
        by_nri_the_driver_recovers_from_being_killed_anywhere,
    ];
    all.into_iter().map(Test::alone).collect()
}

const NICS: [Nic; 3] = [
    Nic { address: "0201:00:00.0", link: "rail0" },
    Nic { address: "0202:00:00.0", link: "rail1" },
    Nic { address: "0203:00:00.0", link: "rail2" },
];

/// All fault points before and after an effect of preparing.
pub(crate) const ON_THE_WAY_IN: [&str; 9] = [
    "prepare:interfaces:after",
    "prepare:checkpoint:before",
    "prepare:checkpoint:after",
    "prepare:files:before",
    "prepare:files:copied",
    "prepare:files:between",
    "prepare:files:after",
    "prepare:cdi:after",
    "prepare:done",
];

/// All fault points before and after an effect of unpreparing.
pub(crate) const ON_THE_WAY_OUT: [&str; 12] = [
    "unprepare:checkpoint:before",
    "unprepare:checkpoint:after",
    "unprepare:cdi:before",
    "unprepare:cdi:after",
    "unprepare:link:before",
    "unprepare:links:left",
    "unprepare:links:after",
    "unprepare:attached:after",
    "unprepare:files:between",
    "unprepare:files:after",
    "unprepare:functions:after",
    "unprepare:done",
];

/// The same for a sandbox that starts, as NRI reports it.
pub(crate) const INTO_A_SANDBOX: [&str; 4] =
    ["sandbox:record:before", "sandbox:record:after", "sandbox:links:after", "sandbox:ready:after"];

/// The same for a sandbox that ends.
pub(crate) const OUT_OF_A_SANDBOX: [&str; 4] =
    ["sandbox:leave:before", "unprepare:link:before", "sandbox:leave:links", "sandbox:leave:after"];

/// A claim and the pod that it is reserved for.
#[derive(Clone)]
struct User {
    claim: Claim,
    pod: Pod,
}

async fn the_driver_recovers_from_being_killed_anywhere(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "campaign", &NICS, async |machine, scope| {
        let users = users(scope, machine).await?;
        let points = [&ON_THE_WAY_IN[..], &ON_THE_WAY_OUT];
        let mut driver = Mortal::new(machine, SeededRng::from_environment()?, &[], &points);
        lives(&mut driver, &users, async |driver, user, sandbox| {
            let claim = &user.claim;
            driver.insist(&ON_THE_WAY_IN, async |it| plugin::prepare(it, claim).await).await?;
            let is_started = driver.rng.one_in(2);
            if is_started {
                start_by_hook(driver, claim, sandbox).await?;
            }
            if is_started && driver.rng.one_in(2) {
                return Ok(());
            }
            let end = async |it: &Machine| unprepare_meanwhile(it, claim, sandbox).await;
            driver.insist(&ON_THE_WAY_OUT, end).await
        })
        .await
    })
    .await
}

async fn by_nri_the_driver_recovers_from_being_killed_anywhere(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_played_machine(&plane, "nri-campaign", &NICS, async |machine, scope| {
        let users = users(scope, machine).await?;
        let mut runtime = Runtime::listen(machine)?;
        let points = [&ON_THE_WAY_IN[..], &INTO_A_SANDBOX, &OUT_OF_A_SANDBOX, &ON_THE_WAY_OUT];
        let flags = &["--attach", "nri"];
        let mut driver = Mortal::new(machine, SeededRng::from_environment()?, flags, &points);
        lives(&mut driver, &users, async |driver, user, sandbox| {
            live_by_nri(driver, &mut runtime, user, sandbox).await
        })
        .await
    })
    .await
}

/// The number of crashes beyond the wanted ones by which every reachable point must have been
/// reached.
const MORE: u32 = 200;

/// Runs claims, each until it is unprepared, until the driver has died often enough and at each
/// point.
async fn lives(
    driver: &mut Mortal<'_>,
    users: &[User],
    mut live: impl AsyncFnMut(&mut Mortal<'_>, &User, &Sandbox) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let wanted: u32 = setting("DRANET_CRASHES", 100)?;
    let mut round = 0;
    while driver.crashes < wanted || !driver.left.is_empty() {
        let left = &driver.left;
        anyhow::ensure!(driver.crashes < wanted + MORE, "points that are never reached: {left:?}");
        let user = driver.rng.pick(users).clone();
        let context = format!("{}, round {round}, after {} crashes", driver.rng, driver.crashes);
        let whole = async {
            let sandbox = Sandbox::open(&format!("pod-{round}"))?;
            live(driver, &user, &sandbox).await?;
            let unprepare = async |it: &Machine| plugin::unprepare(it, &user.claim).await;
            driver.insist(&ON_THE_WAY_OUT, unprepare).await?;
            sandbox.close()?;
            driver.machine.wait_until_clean().await
        };
        whole.await.context(context)?;
        round += 1;
    }
    report(&driver.table(round));
    Ok(())
}

/// Runs the hook, which is killed now and then. The next one finishes its work, or the claim is
/// unprepared as it is.
async fn start_by_hook(
    driver: &mut Mortal<'_>,
    claim: &Claim,
    sandbox: &Sandbox,
) -> anyhow::Result<()> {
    let killed_after = driver.rng.one_in(3).then(|| driver.rng.below(ANY_MOMENT));
    match plugin::start_container(driver.machine, claim, sandbox, killed_after).await? {
        Hook::Attached => {}
        Hook::Failed(error) => anyhow::bail!("the hook failed: {error}"),
        Hook::Killed if driver.rng.one_in(2) => return Ok(()),
        Hook::Killed => plugin::starts(driver.machine, claim, sandbox).await?,
    }
    has_its_interface(sandbox)
}

/// Unprepares a claim while the hook of one of its containers runs, if it still has one. Whoever is first, nothing
/// may be left.
async fn unprepare_meanwhile(machine: &Machine, claim: &Claim, sandbox: &Sandbox) -> Call<()> {
    let hook = plugin::start_container(machine, claim, sandbox, None);
    let (_, undone) = tokio::join!(hook, plugin::unprepare(machine, claim));
    undone
}

/// Runs a claim from preparation to the sandbox's end, of which the driver is not always notified.
async fn live_by_nri(
    driver: &mut Mortal<'_>,
    runtime: &mut Runtime,
    User { claim, pod }: &User,
    sandbox: &Sandbox,
) -> anyhow::Result<()> {
    let devices =
        driver.insist(&ON_THE_WAY_IN, async |it| plugin::prepare(it, claim).await).await?;
    let pod = sandbox.of_pod(pod);
    // If the driver dies, the sandbox still runs, and the container starts later.
    let mut is_running = false;
    let begin = async |it: &Machine| {
        if is_running {
            return runtime.create_container(it, &pod, &devices).await;
        }
        is_running = true;
        runtime.run_sandbox(it, &pod).await
    };
    driver.insist(&INTO_A_SANDBOX, begin).await?;
    let ready = driver.machine.readiness(&claim.uid);
    anyhow::ensure!(ready.exists(), "`{}` leads nowhere", ready.display());
    has_its_interface(sandbox)?;
    if driver.rng.one_in(4) {
        runtime.forget_sandbox(&pod);
        return Ok(());
    }
    let end = async |it: &Machine| runtime.stop_sandbox(it, &pod).await;
    driver.insist(&OUT_OF_A_SANDBOX, end).await
}

fn has_its_interface(sandbox: &Sandbox) -> anyhow::Result<()> {
    let inside = sandbox.addresses()?;
    let is_there = inside.contains("192.168.7.5/24") || inside.contains("10.7.1.1/24");
    anyhow::ensure!(is_there, "the pod has:\n{inside}");
    Ok(())
}

/// One claim on each NIC; every other one has a configuration.
async fn users(scope: &Scope, machine: &Machine) -> anyhow::Result<Vec<User>> {
    let mut users = Vec::new();
    for (number, nic) in NICS.iter().enumerate() {
        let parameters = (number % 2 == 0).then(|| {
            json!({
                "interface": {
                    "name": "net1", "mtu": 4000, "addresses": ["192.168.7.5/24", "fd77::5/64"],
                    "hardwareAddr": "02:00:00:00:bb:01"
                },
                "routes": [{"destination": "172.20.0.0/16", "gateway": "192.168.7.254"}]
            })
        });
        let (name, device) = (format!("user-{number}"), nic.device());
        let place = [&name, &machine.name, &device].map(String::as_str);
        let pod = pods::create_user(scope, place, parameters).await?;
        users.push(User { claim: plugin::reference(scope, &name).await?, pod });
    }
    Ok(users)
}
