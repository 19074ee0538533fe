//! Killed anywhere, the driver goes on, and nothing is lost or left: claims live their
//! lives while it is killed at its fault points and at any moment, and so is the hook.
//!
//! `$DRANET_CRASHES` says how often (100).

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use anyhow::Context;
use node_driver::plugin::wire::dra_v1::Claim;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    floor::Test,
    gb300,
    node::{
        Machine, Nic,
        links::{self, shell},
        plugin::{self, Call, Hook, SOON, Sandbox},
    },
    simulated_node, with_scope,
};
use tokio::time::timeout;

use super::{
    dice::Dice,
    interfaces::{difference, without_pods},
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![killed_anywhere_the_driver_goes_on];
    all.into_iter().map(Test::alone).collect()
}

const NICS: [Nic; 3] = [
    Nic { address: "0201:00:00.0", link: "rail0" },
    Nic { address: "0202:00:00.0", link: "rail1" },
    Nic { address: "0203:00:00.0", link: "rail2" },
];

/// All points before and after an effect of preparing.
const ON_THE_WAY_IN: [&str; 7] = [
    "prepare:checkpoint:before",
    "prepare:checkpoint:after",
    "prepare:files:before",
    "prepare:files:between",
    "prepare:files:after",
    "prepare:cdi:after",
    "prepare:done",
];

/// All points before and after an effect of unpreparing.
const ON_THE_WAY_OUT: [&str; 9] = [
    "unprepare:checkpoint:before",
    "unprepare:checkpoint:after",
    "unprepare:cdi:before",
    "unprepare:cdi:after",
    "unprepare:link:before",
    "unprepare:links:left",
    "unprepare:links:after",
    "unprepare:files:after",
    "unprepare:done",
];

/// Crashes in a row within which a step must be done: the driver is then left alone.
const PATIENCE: u32 = 2;

/// Within this time of a step's begin a driver or a hook is killed, where it is.
const ANY_MOMENT: Duration = Duration::from_millis(30);

async fn killed_anywhere_the_driver_goes_on(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let wanted = env::var("DRANET_CRASHES").map_or(Ok(100), |text| text.parse())?;
    make_links()?;
    let before = without_pods(links::state()?);
    with_scope(plane.client(), async |scope| {
        simulated_node::apply(&plane.client(), "campaign").await?;
        let machine = Machine::alone(&plane, "campaign", &NICS)?;
        let claims = claims(scope, &machine).await?;
        let mut campaign = Campaign {
            machine,
            dice: Dice::new(7),
            crashes: 0,
            point: None,
            left: ON_THE_WAY_IN.into_iter().chain(ON_THE_WAY_OUT).collect(),
        };
        let mut round = 0;
        while campaign.crashes < wanted {
            let claim = campaign.dice.pick(&claims).clone();
            let context = || format!("round {round}, after {} crashes", campaign.crashes);
            let context = context();
            campaign.live(&claim, round).await.context(context.clone())?;
            host_is_as_before(&campaign.machine, &before).await.context(context)?;
            round += 1;
        }
        assert_eq!(campaign.left, BTreeSet::new(), "points that were never reached");
        assert_eq!(plugin::sandboxes(), [""; 0], "namespaces are left");
        Ok(())
    })
    .await?;
    NICS.iter().try_for_each(|nic| shell(&format!("ip link del {}-peer", nic.link)).map(drop))
}

/// Links with addresses and routes of each family.
fn make_links() -> anyhow::Result<()> {
    for (number, nic) in NICS.iter().enumerate() {
        let link = nic.link;
        let _ = shell(&format!("ip link del {link}-peer"));
        for command in [
            format!("ip link add {link} type veth peer name {link}-peer"),
            format!("ip link set {link} address 02:00:00:00:aa:0{number} mtu 9000"),
            format!("ip addr add 10.7{number}.0.1/24 brd + dev {link}"),
            format!("ip addr add fd7{number}::1/64 dev {link} nodad"),
            format!("ip link set {link} up"),
            format!("ip link set {link}-peer up"),
            format!("ip route add 10.8{number}.0.0/16 via 10.7{number}.0.254 dev {link} metric 77"),
            format!("ip -6 route add fd8{number}::/32 via fd7{number}::fe dev {link}"),
        ] {
            shell(&command)?;
        }
    }
    Ok(())
}

/// One claim on each NIC; every other one has a configuration.
async fn claims(scope: &Scope, machine: &Machine) -> anyhow::Result<Vec<Claim>> {
    scope.apply_file(&gb300::file("device-classes.yaml")).await?;
    let mut claims = Vec::new();
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
        let place = [machine.name.as_str(), &nic.device()];
        claims.push(plugin::claim(scope, &format!("claim-{number}"), place, parameters).await?);
    }
    Ok(claims)
}

struct Campaign {
    machine: Machine,
    dice: Dice,
    /// How often the driver was killed.
    crashes: u32,
    /// Where the running driver is told to die.
    point: Option<&'static str>,
    /// Points at which it has not died yet.
    left: BTreeSet<&'static str>,
}

impl Campaign {
    /// A claim's whole life.
    async fn live(&mut self, claim: &Claim, round: u32) -> anyhow::Result<()> {
        self.prepare(claim).await?;
        let sandbox = Sandbox::open(&format!("pod-{round}"))?;
        self.start_container(claim, &sandbox).await?;
        self.unprepare(claim).await?;
        sandbox.close()
    }

    async fn prepare(&mut self, claim: &Claim) -> anyhow::Result<()> {
        for crashes in 0.. {
            self.ensure_driver(&ON_THE_WAY_IN, crashes).await?;
            let moment = self.moment(crashes);
            match timeout(moment, plugin::prepare(&self.machine, claim)).await {
                Ok(Call::Done(_)) => break,
                Ok(Call::Refused(error)) => anyhow::bail!("not prepared: {error}"),
                Ok(Call::Lost) => self.dies().await?,
                Err(_) => self.kill(),
            }
        }
        Ok(())
    }

    async fn unprepare(&mut self, claim: &Claim) -> anyhow::Result<()> {
        for crashes in 0.. {
            self.ensure_driver(&ON_THE_WAY_OUT, crashes).await?;
            let moment = self.moment(crashes);
            match timeout(moment, plugin::unprepare(&self.machine, claim)).await {
                Ok(Call::Done(())) => break,
                Ok(Call::Refused(error)) => anyhow::bail!("not unprepared: {error}"),
                Ok(Call::Lost) => self.dies().await?,
                Err(_) => self.kill(),
            }
        }
        Ok(())
    }

    /// The hook, killed now and then. What it has left is finished by the next one, or
    /// the claim is unprepared as it is.
    async fn start_container(&mut self, claim: &Claim, sandbox: &Sandbox) -> anyhow::Result<()> {
        let killed_after = self.dice.one_in(3).then(|| self.dice.below(ANY_MOMENT));
        match plugin::start_container(&self.machine, claim, sandbox, killed_after).await? {
            Hook::Attached => {}
            Hook::Failed(error) => anyhow::bail!("the hook failed: {error}"),
            Hook::Killed if self.dice.one_in(2) => return Ok(()),
            Hook::Killed => {
                let again = plugin::start_container(&self.machine, claim, sandbox, None).await?;
                anyhow::ensure!(again == Hook::Attached, "{again:?}");
            }
        }
        let inside = sandbox.addresses()?;
        let is_there = inside.contains("192.168.7.5/24") || inside.contains("10.71.0.1/24");
        anyhow::ensure!(is_there, "the pod has:\n{inside}");
        Ok(())
    }

    /// When the step that begins is cut short; beyond all patience where it is not.
    fn moment(&mut self, crashes: u32) -> Duration {
        let is_cut = self.point.is_none() && crashes < PATIENCE && self.dice.one_in(2);
        if is_cut { self.dice.below(ANY_MOMENT) } else { SOON }
    }

    /// A driver that listens, perhaps one that will die at one of these points.
    async fn ensure_driver(&mut self, points: &[&'static str], crashes: u32) -> anyhow::Result<()> {
        while self.machine.driver_has_ended() {
            let unseen: Vec<_> =
                points.iter().filter(|point| self.left.contains(*point)).copied().collect();
            let points = if unseen.is_empty() { points } else { &unseen };
            let is_left_alone = crashes >= PATIENCE || self.dice.one_in(4);
            self.point = (!is_left_alone).then(|| *self.dice.pick(points));
            let flags: Vec<&str> =
                self.point.map(|point| ["--kill-at", point]).into_iter().flatten().collect();
            self.machine.spawn_driver(&flags)?;
            // It undoes first what it left, past points of the way out.
            if !plugin::listens(&self.machine).await? {
                self.dies().await?;
            }
        }
        Ok(())
    }

    /// The driver has ended, or is about to: where it was told, and not by itself.
    async fn dies(&mut self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            Ok(Check::that(self.machine.driver_has_ended(), || "it does not end".to_owned()))
        })
        .await?;
        let driver = self.machine.driver().context("it was started")?;
        let (signal, tail) = (driver.ended_by_signal(), driver.tail(15));
        anyhow::ensure!(signal == Some(KILL), "the driver ended by {signal:?}:\n{tail}");
        let point = self.point.take().context("nobody told it to die")?;
        self.left.remove(point);
        self.crashes += 1;
        self.machine.kill_driver();
        Ok(())
    }

    fn kill(&mut self) {
        self.point = None;
        self.crashes += 1;
        self.machine.kill_driver();
    }
}

/// `SIGKILL`.
const KILL: i32 = 9;

/// Nothing of any claim is left, and the host has everything back.
async fn host_is_as_before(machine: &Machine, before: &Value) -> anyhow::Result<()> {
    let files = machine.driver_files()?;
    anyhow::ensure!(files.is_empty(), "left: {files:?}");
    eventually(SOON, async || {
        let after = without_pods(links::state()?);
        Ok(Check::that(after == *before, || difference(before, &after)))
    })
    .await
}
