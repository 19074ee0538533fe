//! Tasks of the leading replica: it labels nodes with their fabrics, places groups of pods on
//! fabrics, and frees the addresses of deleted claims. Each task makes a decision from its inputs,
//! then writes that carry the version of those inputs. It runs when an input changes, and when the
//! time comes that a decision named. The only state is what has been reported, so another replica
//! can continue from the pods at any time.

mod apply;
mod conflicts;
mod nic_pools;
mod node_labels;
mod pod_groups;
mod report;
mod watch;

use crate::decide::{self, Action, Decision, PlacementPolicy, decide};
use crate::group::{Group, GroupKey};
use crate::level_labels::LevelSources;
use crate::server::metrics::Metrics;
use crate::size_paths::SizePaths;
use crate::sizes::Sizes;
use crate::{ClusterCapacity, WaitingReason};
use cluster_model::watch::{SharedView, VolumesOnDemand};
use dra_allocator::Budget;
use futures::StreamExt;
use futures::stream;
use kube::Client;
use process::chain::Chain;
use report::Reporter;
use serve::readiness::Readiness;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use watch::{Objects, Watched};

/// The minimum time between rounds while devices and claims change, and the time until a started or
/// failed action is checked again.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause of a loop in which something fails.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The time between rounds while groups wait and nothing changes, since their owners are not
/// watched.
const LOOK: Duration = Duration::from_secs(30);
/// How long to gather changes before a round, since pods of a job are created together.
const GATHER: Duration = Duration::from_millis(100);
/// How long a round may take. Without hostile expressions it takes some milliseconds; 5,000 nodes
/// that all differ take two seconds.
const ROUND: Duration = Duration::from_secs(10);
/// How many groups are written concurrently.
const GROUPS_TOGETHER: usize = 4;

/// The leader's tasks and their inputs.
pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) view: SharedView,
    pub(crate) volumes: VolumesOnDemand,
    pub(crate) policy: PlacementPolicy,
    /// True if kube-scheduler chooses the fabrics, by `PodGroup`s; of pods that have no `PodGroup` of
    /// their workload.
    pub(crate) pod_groups: bool,
    /// The most nodes whose labels are written per second.
    pub(crate) label_rate: NonZeroU32,
    /// The labels of nodes from which their domains are copied.
    pub(crate) level_sources: LevelSources,
    /// How many pods objects have whose kinds are not built in.
    pub(crate) size_paths: SizePaths,
    pub(crate) metrics: Metrics,
}

/// What a round has left.
pub(crate) struct RoundOutcome {
    /// Whether no other round must follow soon.
    is_done: bool,
    /// The groups that wait, and why.
    waiting: Vec<(GroupKey, WaitingReason)>,
}

impl RoundOutcome {
    fn new() -> Self {
        Self { is_done: true, waiting: Vec::new() }
    }
}

impl Controller {
    /// Works until dropped. Waits until the view is complete.
    pub(crate) async fn work(&self, synced: &Readiness) {
        synced.ready().await;
        tokio::join!(self.label_nodes(), self.place_groups(), self.keep_nic_pools());
    }

    /// Places groups without end.
    async fn place_groups(&self) {
        let watched = Arc::new(Watched::default());
        let waiting = self.metrics.while_leading();
        let follow = watched.follow(self.client.clone(), self.pod_groups);
        let place = async {
            watched.complete().await;
            let mut sizes = Sizes::new(self.size_paths.clone());
            let mut expensive = BTreeSet::new();
            let mut reporter = Reporter::new(&self.client);
            loop {
                let seen = self.view.read().revision();
                let next =
                    self.look(watched.objects(), &mut sizes, &mut reporter, &mut expensive).await;
                let view_changed = async {
                    tokio::time::sleep(PAUSE).await;
                    self.view
                        .changed_since(seen, |now| (now.epoch, now.claims, now.placement))
                        .await;
                };
                tokio::select! {
                    () = watched.changed() => {}
                    // If no group waits, changes of devices and claims do not matter.
                    () = view_changed, if next.is_some() => {}
                    () = after(next) => {}
                }
                tokio::time::sleep(GATHER).await;
            }
        };
        tokio::join!(follow, place);
        drop(waiting);
    }

    /// Runs one round over all groups. Returns the time until the next round if nothing changes;
    /// `None` if no group waits.
    async fn look(
        &self,
        objects: Objects,
        sizes: &mut Sizes,
        reporter: &mut Reporter,
        expensive: &mut BTreeSet<GroupKey>,
    ) -> Option<Duration> {
        let mut groups = objects.pods.groups();
        for group in &mut groups {
            group.is_expensive = expensive.contains(&group.key);
        }
        if groups.iter().any(Group::waits_with_volumes) {
            self.volumes.listed().await;
        }
        let unread = sizes.fill(&self.client, &mut groups).await;
        let waits = groups.iter().any(Group::is_unfinished).then_some(LOOK);
        let now = self.view.now();
        let due = decide::next_due(&groups, &self.policy, now);
        let due = due.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        let is_done = self.place_all(&groups, &unread.groups, objects, reporter, expensive).await;
        let again = (!is_done).then_some(PAUSE);
        [again, unread.next, waits, due, reporter.next_due(Instant::now())]
            .into_iter()
            .flatten()
            .min()
    }

    /// Places groups, and reports those whose owner could not be read. Returns false if another round
    /// must follow soon.
    async fn place_all(
        &self,
        groups: &[Group],
        unread: &[(Group, WaitingReason)],
        objects: Objects,
        reporter: &mut Reporter,
        expensive: &mut BTreeSet<GroupKey>,
    ) -> bool {
        let mut by_key: BTreeMap<&GroupKey, &Group> =
            groups.iter().map(|group| (&group.key, group)).collect();
        let mut outcome = RoundOutcome::new();
        if self.pod_groups {
            outcome = self.write_pod_groups(&by_key, &objects, reporter).await;
        } else {
            let foreign = groups.iter().filter(|group| group.is_pod_group());
            let foreign = foreign.filter(|group| group.has_gated());
            outcome
                .waiting
                .extend(foreign.map(|it| (it.key.clone(), WaitingReason::OtherPlacement)));
        }
        let own = groups.iter().filter(|group| !group.is_pod_group()).cloned().collect();
        let decisions = match self.decide(objects, &Arc::new(own)).await {
            Ok(decisions) => decisions,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "Groups not placed; trying again");
                outcome.is_done = false;
                Vec::new()
            }
        };
        let costly = decisions.iter().filter(|it| it.waits_for(&WaitingReason::Expensive));
        *expensive = costly.map(|decision| decision.group.clone()).collect();
        let pairs = decisions.iter().filter_map(|it| Some((it, *by_key.get(&it.group)?)));
        let applied: Vec<_> = stream::iter(pairs)
            .map(async |(decision, group)| (&group.key, self.apply(decision, group).await))
            .buffer_unordered(GROUPS_TOGETHER)
            .collect()
            .await;
        let still = applied.into_iter().filter_map(|(key, why)| Some((key.clone(), why?)));
        outcome.waiting.extend(still);
        for (group, why) in unread {
            by_key.insert(&group.key, group);
            outcome.waiting.push((group.key.clone(), why.clone()));
        }
        self.metrics.set_waiting(outcome.waiting.iter().map(|(_, why)| why.reason()));
        reporter.report(&decisions, &by_key, &outcome.waiting).await;
        // Writes are checked in another round, since they may have failed.
        outcome.is_done
            && decisions.iter().all(|decision| {
                matches!(decision.action, Action::Wait(_))
                    && !decision.waits_for(&WaitingReason::NotReached)
            })
    }

    /// Decides on a separate thread, because it may take a second.
    async fn decide(
        &self,
        objects: Objects,
        groups: &Arc<Vec<Group>>,
    ) -> Result<Vec<Decision>, tokio::task::JoinError> {
        if !decide::is_needed(groups, &self.policy) {
            return Ok(Vec::new());
        }
        let (groups, view, policy) = (Arc::clone(groups), self.view.clone(), self.policy.clone());
        let now = view.now();
        let gone = CancellationToken::new();
        // Dropped when this replica no longer leads.
        let _gone_with_the_leader = gone.clone().drop_guard();
        tokio::task::spawn_blocking(move || {
            let view = view.read();
            let end = Instant::now() + ROUND;
            let stop = || Instant::now() >= end || gone.is_cancelled();
            let budget = Budget::until(&stop);
            let capacity = ClusterCapacity::new(&view, &objects.nodes, &budget);
            decide(&groups, capacity, &policy, now)
        })
        .await
    }
}

/// The pause of a loop after one of `last`: longer each time while something fails.
fn next_pause(last: Duration, is_done: bool) -> Duration {
    if is_done { PAUSE } else { (last * 2).min(PAUSE_MAX) }
}

/// Returns after a time; never if there is none.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
