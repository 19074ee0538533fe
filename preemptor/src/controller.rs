//! Tasks of the leading replica: it carries out the preemptions that have begun, as their
//! DeviceTaintRules tell, and begins the next ones. It runs when an input changes, and when the time
//! comes that a step named.

mod act;
mod follow;
mod look;
mod memory;
mod report;
mod watch;

use crate::metrics::Metrics;
use crate::protocol::record::Begun;
use crate::protocol::rules::{self, rules_of};
use crate::protocol::step::{End, Limits, Seen, evicted, step};
use crate::{Cluster, Decision, NoPreemption, Preemption, Rules, decide};
use cluster_model::watch::{SharedView, VolumesOnDemand};
use fabric_controller::Group;
use fabric_controller::size_paths::SizePaths;
use fabric_controller::sizes::Sizes;
use follow::Followed;
use kube::Client;
use kube::runtime::events::Recorder;
use memory::Memory;
use process::chain::Chain;
use process::requests::ApiError;
use serve::readiness::Readiness;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::{Objects, Watched};

/// The time between rounds while a preemption is carried out.
const PAUSE: Duration = Duration::from_secs(1);
/// The time between rounds if nothing changes.
const IDLE: Duration = Duration::from_secs(30);
/// How long to gather changes before a round.
const GATHER: Duration = Duration::from_millis(200);

/// The operator's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) dry_run: bool,
    pub(crate) evictions_per_minute: NonZeroU32,
    pub(crate) moves_per_hour: u32,
    pub(crate) size_paths: SizePaths,
}

/// The leader's task and its inputs.
pub(crate) struct Controller {
    client: Client,
    view: SharedView,
    volumes: VolumesOnDemand,
    settings: Settings,
    metrics: Metrics,
    recorder: Recorder,
}

impl Controller {
    pub(crate) fn new(
        client: Client,
        view: SharedView,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        let recorder = report::recorder(&client);
        let volumes = VolumesOnDemand::new(client.clone(), view.clone());
        Self { client, view, volumes, settings, metrics, recorder }
    }

    /// Works until dropped. Waits until the view is complete.
    pub(crate) async fn work(&self, synced: &Readiness) {
        synced.ready().await;
        let watched = Arc::new(Watched::default());
        let _leading = self.metrics.while_leading();
        let follow = watched.follow(&self.client);
        let work = async {
            watched.complete().await;
            let mut sizes = Sizes::new(self.settings.size_paths.clone());
            let Settings { evictions_per_minute, moves_per_hour, .. } = self.settings;
            let mut memory = Memory::new(evictions_per_minute, moves_per_hour);
            loop {
                let seen = self.view.read().revision();
                let is_busy = match self.round(&watched, &mut sizes, &mut memory).await {
                    Ok(is_busy) => is_busy,
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "A round has failed; trying again");
                        true
                    }
                };
                let pause = if is_busy { PAUSE } else { IDLE };
                tokio::select! {
                    () = watched.changed() => {}
                    () = self.view.changed_since(seen, |now| (now.epoch, now.claims, now.placement)) => {}
                    () = tokio::time::sleep(pause) => {}
                }
                tokio::time::sleep(GATHER).await;
            }
        };
        tokio::join!(follow, work);
    }

    /// Takes the next step of each preemption that has begun, and begins another one if it may. Returns
    /// true if another round must follow soon.
    async fn round(
        &self,
        watched: &Arc<Watched>,
        sizes: &mut Sizes,
        memory: &mut Memory,
    ) -> Result<bool, ApiError> {
        if watched.objects().pods.waiting().any(|(_, pod)| pod.ask.has_volumes()) {
            self.volumes.listed().await;
        }
        let rules::ReadRules { begun, stray } = rules::read(&self.list_rules().await?);
        if !stray.is_empty() {
            tracing::info!(rules = stray.len(), "Removing rules of a preemption that never began");
            self.remove_rules(&stray).await?;
        }
        memory.keep(&begun.iter().map(|begun| begun.id.as_str()).collect());
        let mut going = Vec::new();
        for one in begun {
            if self.go_on(&one, watched, memory).await? {
                going.push(one);
            }
        }
        self.metrics.set_begun(going.len());
        self.follow_released(&mut memory.followed).await?;
        let has_begun = self.begin_next(&going, watched, sizes, memory).await?;
        Ok(has_begun || !going.is_empty() || !memory.followed.is_empty())
    }

    /// Takes the next step of a preemption. Returns false if it has ended.
    async fn go_on(
        &self,
        begun: &Begun,
        watched: &Arc<Watched>,
        memory: &mut Memory,
    ) -> Result<bool, ApiError> {
        let looked = self.look(begun, watched).await?;
        let now = self.view.now();
        let next = step(begun, &looked.seen, &self.settings.limits, now);
        self.write(begun, &next, &looked, memory).await?;
        let Some(end) = &next.end else {
            if next.writes.is_empty() {
                let Seen { pods, victims, room } = &looked.seen;
                tracing::debug!(preemption = begun.id, ?pods, ?victims, ?room, "Waiting");
            }
            return Ok(true);
        };
        let evicted = evicted(begun, &looked.seen, &self.settings.limits, now);
        tracing::info!(preemption = begun.id, ?end, evicted, "A preemption ends");
        if *end == End::Released {
            let limits = &self.settings.limits;
            memory.followed.push(Followed::new(begun, evicted, limits, Instant::now()));
        }
        self.report_end(begun, end, evicted).await;
        self.remove_rules(&begun.removal()).await?;
        let seconds = now.duration_since(begun.since).as_secs_f64();
        self.metrics.count_end(end, seconds, evicted);
        Ok(false)
    }

    /// Begins the next preemption, if there is one. Returns true if it has begun.
    async fn begin_next(
        &self,
        begun: &[Begun],
        watched: &Arc<Watched>,
        sizes: &mut Sizes,
        memory: &mut Memory,
    ) -> Result<bool, ApiError> {
        let objects = watched.objects();
        let mut groups = objects.groups.groups();
        // Groups whose owner could not be read have no gated pods then.
        sizes.fill(&self.client, &mut groups).await;
        let begun: Vec<_> = begun.iter().map(Begun::as_decided).collect();
        let may_move = begun.is_empty() && memory.may_look_for_moves(Instant::now());
        let rules = Rules { may_move, ..self.settings.rules.clone() };
        let Decision { preemption, refusals } = self.decide(objects, groups, (begun, rules)).await;
        let mut told: BTreeSet<&str> = refusals.iter().map(|it| it.pod.uid.as_str()).collect();
        for refusal in refusals.iter().filter(|refusal| is_worth_an_event(&refusal.why)) {
            if memory.is_new(&refusal.pod.uid, &refusal.why.to_string()) {
                self.report_refusal(refusal).await;
            }
        }
        let first = preemption.as_ref().and_then(|decided| decided.placements.first());
        told.extend(first.map(|placement| placement.pod.uid.as_str()));
        memory.keep_told(&told);
        let Some(decided) = preemption else { return Ok(false) };
        self.begin(&decided, memory).await
    }

    async fn begin(&self, decided: &Preemption, memory: &mut Memory) -> Result<bool, ApiError> {
        let Some(first) = decided.placements.first() else { return Ok(false) };
        if self.settings.dry_run {
            let text = format!("{:?}", decided.victims);
            if memory.is_new(&first.pod.uid, &text) {
                self.report_decided(decided).await;
            }
            return Ok(false);
        }
        let rules = match rules_of(decided) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::warn!(pod = %first.pod.key, error = %Chain(&error), "Not preempted");
                return Ok(false);
            }
        };
        let victims: usize = decided.victims.iter().map(|victim| victim.pods.len()).sum();
        let now = Instant::now();
        if decided.moves && !memory.moves.take(victims, now) {
            return Ok(false);
        }
        if !memory.rate.take(victims, now) {
            // Another round follows soon.
            return Ok(true);
        }
        self.create_rules(&rules).await?;
        tracing::info!(pod = %first.pod.key, rules = rules.len(), "A preemption begins");
        self.report_decided(decided).await;
        Ok(true)
    }

    /// Decides on a separate thread, because it may take a while.
    async fn decide(
        &self,
        objects: Objects,
        groups: Vec<Group>,
        (begun, rules): (Vec<Preemption>, Rules),
    ) -> Decision {
        let (view, now) = (self.view.clone(), self.view.now());
        let decided = tokio::task::spawn_blocking(move || {
            let view = view.read();
            let Objects { pods, nodes, groups: _, budgets } = &objects;
            let cluster =
                Cluster { view: &view, nodes, pods, groups: &groups, budgets, begun: &begun };
            decide(cluster, &rules, now)
        });
        decided.await.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Nothing is decided; trying again");
            Decision::default()
        })
    }
}

/// Whether somebody may want to do something about a pod for which nobody leaves. Most pods that wait
/// have the lowest priority.
fn is_worth_an_event(why: &NoPreemption) -> bool {
    match why {
        NoPreemption::NeverPreempts | NoPreemption::NobodyIsLower | NoPreemption::NotYet(_) => {
            false
        }
        NoPreemption::NotAllowed
        | NoPreemption::BudgetForbids(_)
        | NoPreemption::VictimsNotAllowed(_)
        | NoPreemption::DoesNotHelp
        | NoPreemption::ExtendedResource
        | NoPreemption::InPodGroup
        | NoPreemption::Unknown(_) => true,
    }
}
