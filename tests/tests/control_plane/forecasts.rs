//! The extender's forecasts equal what the scheduler does. Random pods come and go on nodes of four
//! kinds. The forecast for the node that kube-scheduler chose is compared with the allocation that
//! it wrote into the claim.
//!
//! The test itself compares `/debug/explain` with the API server, and then compares the extender's
//! metrics with its own counts.
//!
//! `DRANET_FORECAST_PODS` sets the number of pods (120), `DRANET_SEED` the seed (7).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::Value;
use tests::{
    Check, ControlPlane, Scope,
    allocation::{self, allocations, disjoint},
    eventually,
    installation::Installation,
    machine::{A100, AMD_CLASS, H100, MI300X},
    random::Random,
    setting,
    suite::Test,
    with_scope,
};

use super::churn::{Demand, amd, create, nvidia};

const SOON: Duration = Duration::from_mins(1);
/// Nodes of each of the four kinds.
const OF_A_KIND: usize = 15;
/// The number of pods at a time; they use about half of the GPUs.
const TOGETHER: usize = 90;
/// The maximum number of pods created at once.
const BURST: usize = 4;
/// The number of pods out of ten, among those created together with others, that must match their
/// forecast. The extender has to assume what is in flight.
const RIGHT_OF_TEN: usize = 8;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_get_what_the_extender_forecasts];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_get_what_the_extender_forecasts(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let pods = setting("DRANET_FORECAST_PODS", 120)?;
    let seed: u64 = setting("DRANET_SEED", 7)?;
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(AMD_CLASS).await?;
        let kinds = [
            installation.gb300("gb300").await?,
            installation.machine("h100", H100).await?,
            installation.machine("a100", A100).await?,
            installation.machine("mi300x", MI300X).await?,
        ];
        for (kind, name) in kinds.iter().zip(["gb300", "h100", "a100", "mi300x"]) {
            for number in 1..OF_A_KIND {
                installation.add_copy(kind, &format!("{name}-{number}")).await?;
            }
        }
        installation.start_admission().await?;
        installation.start_extender().await?;
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut campaign = Campaign {
            scope,
            installation,
            random,
            alive: BTreeMap::new(),
            seen: BTreeSet::new(),
            made: 0,
            changed: BTreeSet::new(),
        };
        campaign.run(pods).await
    })
    .await;
    let restarted = plane.restart_scheduler(&tests::SchedulerConfig::default()).await;
    outcome.and(restarted)
}

struct Campaign<'a> {
    scope: &'a Scope,
    installation: Installation<'a>,
    random: Random,
    /// The existing pods and their nodes.
    alive: BTreeMap<String, String>,
    /// Those of them whose devices the extender has seen.
    seen: BTreeSet<String>,
    made: usize,
    /// Nodes that changed since the extender was last known to be up to date.
    changed: BTreeSet<String>,
}

/// Counts of pods, by how their devices compare with the forecast.
#[derive(Debug, Default)]
struct Counts {
    same: usize,
    /// Other devices than forecast.
    other: usize,
    /// The extender was not called, since there was only one node.
    not_asked: usize,
    /// Nothing was forecast for the node: for the extender it had no room.
    no_forecast: usize,
    /// There was no room for the pod.
    no_room: usize,
}

impl Campaign<'_> {
    async fn run(&mut self, pods: usize) -> anyhow::Result<()> {
        let (mut quiet, mut busy) = (Counts::default(), Counts::default());
        while self.made < pods {
            self.settle().await?;
            let one = vec![self.draw()];
            let compared = quiet.same + quiet.other;
            self.schedule(one, &mut quiet).await?;
            // When the extender is called, it first compares the pods that it has seen.
            let has_compared = quiet.same + quiet.other > compared;
            // Some may be deleted while the others are created.
            let count = 1 + self.random.below(BURST);
            let burst = (0..count).map(|_| self.draw()).collect();
            if has_compared {
                self.delete_some().await?;
            }
            self.schedule(burst, &mut busy).await?;
            if self.made / 100 > (self.made - 1 - count) / 100 {
                report(&format!("{} pods; alone: {quiet:?}; in bursts: {busy:?}", self.made));
            }
        }
        report(&format!("{} pods; alone: {quiet:?}; in bursts: {busy:?}", self.made));
        self.settle().await?;
        self.check(&quiet, &busy).await
    }

    fn draw(&mut self) -> (String, Demand) {
        let demands = [
            nvidia(1, 1),
            nvidia(1, 2),
            nvidia(2, 2),
            nvidia(4, 4),
            amd(1, 1),
            amd(1, 2),
            amd(2, 3),
            amd(4, 4),
        ];
        self.made += 1;
        (format!("p{}", self.made), demands[self.random.below(demands.len())])
    }

    /// Creates pods at once, and compares the devices of each.
    async fn schedule(
        &mut self,
        pods: Vec<(String, Demand)>,
        counts: &mut Counts,
    ) -> anyhow::Result<()> {
        for (name, demand) in &pods {
            create(self.scope, &demand.pod(name)).await?;
        }
        for (name, demand) in pods {
            let Some(node) = self.bound(&name).await? else {
                counts.no_room += 1;
                self.scope.delete_pod(&name).await?;
                continue;
            };
            let forecast = self.forecast(&name, &node).await?;
            let all = allocations(self.scope.client(), self.scope.namespace()).await?;
            disjoint(&all).map_err(|device| anyhow::anyhow!("{device:?} twice"))?;
            let (_, actual) = all.iter().find(|(of, _)| *of == name).context("it has devices")?;
            let actual: BTreeSet<String> = actual.iter().map(text).collect();
            match forecast {
                Forecast::NotAsked => counts.not_asked += 1,
                Forecast::Nothing => counts.no_forecast += 1,
                Forecast::Devices(devices) if devices == actual => counts.same += 1,
                Forecast::Devices(devices) => {
                    counts.other += 1;
                    report(&format!("{name} {demand:?}: forecast {devices:?}, got {actual:?}"));
                }
            }
            self.changed.insert(node.clone());
            self.alive.insert(name, node);
        }
        Ok(())
    }

    /// The node of a pod once it has one; `None` if the scheduler finds no room.
    async fn bound(&self, name: &str) -> anyhow::Result<Option<String>> {
        let pods: Api<Pod> = self.scope.api();
        eventually(SOON, async || {
            let pod = pods.get(name).await?;
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                return Ok(Check::Done(Some(node)));
            }
            let conditions = pod.status.unwrap_or_default().conditions.unwrap_or_default();
            let unschedulable = conditions.iter().any(|condition| {
                let message = condition.message.as_deref().unwrap_or_default();
                condition.type_ == "PodScheduled"
                    && condition.status == "False"
                    && message.contains("cannot allocate all claims")
            });
            Ok(if unschedulable {
                Check::Done(None)
            } else {
                Check::NotYet(format!("pod `{name}`: {conditions:?}"))
            })
        })
        .await
    }

    /// The extender's latest forecast for the node.
    async fn forecast(&self, pod: &str, node: &str) -> anyhow::Result<Forecast> {
        let key = format!("explain?pod={}/{pod}", self.scope.namespace());
        let Some(rows) = self.installation.extender()?.debug(&key).await? else {
            return Ok(Forecast::NotAsked);
        };
        let rows = rows.as_array().context("an array of nodes")?;
        let row = rows.iter().find(|row| row["of"] == node).context("the node was a candidate")?;
        if row["basis"] != "predicted" {
            return Ok(Forecast::Nothing);
        }
        let devices = row["devices"].as_array().context("it has devices")?;
        let device = |device: &Value| device.as_str().map(str::to_owned);
        let devices: Option<_> = devices.iter().map(device).collect();
        Ok(Forecast::Devices(devices.context("devices are texts")?))
    }

    /// Deletes random pods until at most [`TOGETHER`] are left, and sometimes more of them.
    async fn delete_some(&mut self) -> anyhow::Result<()> {
        while !self.seen.is_empty() && (self.alive.len() > TOGETHER || self.random.below(3) == 0) {
            let number = self.random.below(self.seen.len());
            let name = self.seen.iter().nth(number).context("there is one")?.clone();
            self.seen.remove(&name);
            self.scope.delete_pod(&name).await?;
            self.changed.extend(self.alive.remove(&name));
        }
        Ok(())
    }

    /// Waits until the claims of deleted pods are deleted too, and the extender's view of every
    /// device equals the API server's.
    async fn settle(&mut self) -> anyhow::Result<()> {
        let nodes = mem::take(&mut self.changed);
        eventually(SOON, async || {
            let there = allocations(self.scope.client(), self.scope.namespace()).await?;
            let held: BTreeSet<String> =
                there.iter().flat_map(|(_, devices)| devices.iter().map(text)).collect();
            let left = there.iter().filter(|(pod, _)| !self.alive.contains_key(pod)).count();
            if left > 0 {
                return Ok(Check::NotYet(format!("{left} claims of pods that are gone")));
            }
            for node in &nodes {
                let page = self.installation.extender()?.debug(&format!("nodes/{node}")).await?;
                let page = page.context("the node has devices")?;
                let devices = page["devices"].as_array().context("it lists them")?;
                let behind = devices.iter().find(|device| {
                    let is_held = device["id"].as_str().is_some_and(|id| held.contains(id));
                    device["holder"].is_null() == is_held
                });
                if let Some(device) = behind {
                    return Ok(Check::NotYet(format!("the extender is behind: {device}")));
                }
            }
            Ok(Check::Done(()))
        })
        .await?;
        self.seen = self.alive.keys().cloned().collect();
        Ok(())
    }

    async fn check(&self, quiet: &Counts, busy: &Counts) -> anyhow::Result<()> {
        let wrong = quiet.other + quiet.no_forecast;
        anyhow::ensure!(wrong == 0, "alone on a cluster at rest: {quiet:?}");
        anyhow::ensure!(quiet.same > 0 && busy.same > 0, "{quiet:?} {busy:?}");
        let compared = busy.same + busy.other;
        anyhow::ensure!(10 * busy.same >= RIGHT_OF_TEN * compared, "{busy:?}");
        let of =
            |result: &str| format!("dranet_scheduler_ext_forecasts_total{{result=\"{result}\"}}");
        eventually(SOON, async || {
            let metrics = self.installation.extender()?.metrics().await?;
            let count = |result: &str| metrics.get(&of(result)).copied().unwrap_or_default();
            anyhow::ensure!(
                count("Different") == 0.0,
                "wrong where nothing changed: {}",
                self.installation.extender_log()
            );
            let (same, other) = (quiet.same + busy.same, busy.other);
            let expected = [("Same", same), ("Changed", other)];
            let fine = expected.iter().all(|(result, expected)| {
                // Whole numbers far below 2^52.
                (count(result) - f64::from(u32::try_from(*expected).unwrap_or(0))).abs() < 0.5
            });
            let samples = metrics.iter().filter(|(name, _)| name.contains("forecasts"));
            Ok(Check::that(fine, || format!("{:?}, not {expected:?}", samples.collect::<Vec<_>>())))
        })
        .await
    }
}

enum Forecast {
    NotAsked,
    Nothing,
    Devices(BTreeSet<String>),
}

/// A device as the extender writes it.
fn text(device: &allocation::Device) -> String {
    format!("{}/{}/{}", device.driver, device.node, device.name)
}

#[expect(clippy::print_stderr, reason = "the counts are worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
