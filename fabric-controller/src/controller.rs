//! What the leading replica does: it labels nodes with their fabrics, places groups of pods on
//! them, and frees the addresses of claims that are gone. Each is a decision over what is seen, and then writes that carry the version
//! that they were decided from. It keeps nothing but what it has reported, so another replica
//! can go on from the pods at any time.

mod apply;
mod errors;
mod nic_pools;
mod node_labels;
mod pod_groups;
mod report;
mod sizes;
mod watch;

use crate::decide::{Decision, PlacementPolicy, decide};
use crate::group::{Group, GroupKey};
use crate::server::metrics::Metrics;
use crate::{ClusterCapacity, WaitingReason};
use cluster_model::watch::SharedView;
use futures::stream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use process::chain::Chain;
use report::Reporter;
use serve::readiness::Readiness;
use sizes::Sizes;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use watch::{Objects, Watched};

/// How often all groups are looked over where nothing changes: time passes.
const PERIOD: Duration = Duration::from_secs(2);
/// For how long changes are gathered before a look: pods of a job come together.
const GATHER: Duration = Duration::from_millis(100);
/// How many groups are written concurrently.
const GROUPS_TOGETHER: usize = 4;

/// The leader's tasks and their inputs.
pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) view: SharedView,
    pub(crate) policy: PlacementPolicy,
    /// Whether kube-scheduler chooses the fabrics, by `PodGroup`s.
    pub(crate) pod_groups: bool,
    /// The most nodes whose labels are written per second.
    pub(crate) label_rate: NonZeroU32,
    pub(crate) metrics: Metrics,
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
        let follow = if self.pod_groups {
            watched.follow_pod_groups(self.client.clone()).boxed()
        } else {
            watched.follow(self.client.clone()).boxed()
        };
        let place = async {
            watched.complete().await;
            let mut sizes = Sizes::default();
            let mut reporter = Reporter::new(&self.client);
            loop {
                let objects = watched.objects();
                if self.pod_groups {
                    self.write_pod_groups(objects, &mut sizes, &mut reporter).await;
                } else if let Err(error) = self.place_once(objects, &mut sizes, &mut reporter).await
                {
                    tracing::warn!(error = %Chain(&error), "Groups not placed; trying again");
                }
                tokio::select! {
                    () = watched.changed() => tokio::time::sleep(GATHER).await,
                    () = tokio::time::sleep(PERIOD) => {}
                }
            }
        };
        tokio::join!(follow, place);
        drop(waiting);
    }

    /// One look at all groups, and what follows from it.
    async fn place_once(
        &self,
        objects: Objects,
        sizes: &mut Sizes,
        reporter: &mut Reporter,
    ) -> Result<(), tokio::task::JoinError> {
        let mut groups = objects.pods.groups();
        sizes.fill(&self.client, &mut groups).await;
        let (others, groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(Group::is_pod_group);
        let groups = Arc::new(groups);
        let decisions = self.decide(objects, &groups).await?;
        let by_key: BTreeMap<&GroupKey, &Group> =
            groups.iter().map(|group| (&group.key, group)).collect();
        let pairs = decisions.iter().filter_map(|it| Some((it, *by_key.get(&it.group)?)));
        let outcomes: Vec<_> = stream::iter(pairs)
            .map(async |(decision, group)| (group, self.apply(decision, group).await))
            .buffer_unordered(GROUPS_TOGETHER)
            .collect()
            .await;
        let others = others.iter().filter(|group| group.gated().next().is_some());
        let waiting: Vec<(&Group, WaitingReason)> = outcomes
            .into_iter()
            .filter_map(|(group, why)| Some((group, why?)))
            .chain(others.map(|group| (group, WaitingReason::OtherPlacement)))
            .collect();
        self.metrics.set_waiting(waiting.iter().map(|(_, why)| why.reason()));
        reporter.report(&decisions, &by_key, &waiting).await;
        Ok(())
    }

    /// Decides on a separate thread, because it may take a second.
    async fn decide(
        &self,
        objects: Objects,
        groups: &Arc<Vec<Group>>,
    ) -> Result<Vec<Decision>, tokio::task::JoinError> {
        if !groups.iter().any(Group::is_open) {
            return Ok(Vec::new());
        }
        let (groups, view, policy) = (Arc::clone(groups), self.view.clone(), self.policy);
        let decided = move || {
            let view = view.read();
            let capacity = ClusterCapacity::new(&view, &objects.pods, &objects.nodes);
            decide(&groups, capacity, &policy, Timestamp::now())
        };
        tokio::task::spawn_blocking(decided).await
    }
}
