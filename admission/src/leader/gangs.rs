//! Groups of pods on one fabric: what is decided in [`crate::gang`] is carried out
//! here. Nothing is kept but what has been told to people, so whoever leads next
//! goes on from the pods.

mod act;
mod sizes;
mod tell;
mod watch;

use super::Leader;
use crate::gang::group::GroupKey;
use crate::gang::{Cluster, Decision, Group, Rules, Why, decide};
use cluster_model::watch::SharedView;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::jiff::Timestamp;
use process::chain::Chain;
use sizes::Sizes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tell::Told;
use watch::Facts;

/// How often all groups are looked over where nothing changes: time passes.
const PERIOD: Duration = Duration::from_secs(2);
/// For how long changes are gathered before a look: pods of a job come together.
const GATHER: Duration = Duration::from_millis(100);
/// Groups that are written at a time.
const GROUPS_TOGETHER: usize = 4;

impl Leader {
    /// Places groups for ever, where this is switched on.
    pub(super) async fn place_groups(&self) {
        if !self.policy.fabric_controller {
            return std::future::pending().await;
        }
        let facts = Arc::new(Facts::default());
        let waiting = self.metrics.gangs.while_leading();
        let place = async {
            facts.complete().await;
            let mut sizes = Sizes::default();
            let mut told = Told::new(&self.templates.client);
            loop {
                let begun = self.look(&facts, &mut sizes, &mut told).await;
                if let Err(error) = begun {
                    tracing::warn!(error = %Chain(&error), "Groups not looked over; trying again");
                }
                tokio::select! {
                    () = facts.changed() => tokio::time::sleep(GATHER).await,
                    () = tokio::time::sleep(PERIOD) => {}
                }
            }
        };
        tokio::join!(facts.follow(self.templates.client.clone()), place);
        drop(waiting);
    }

    /// One look at all groups, and what follows from it.
    async fn look(
        &self,
        facts: &Arc<Facts>,
        sizes: &mut Sizes,
        told: &mut Told,
    ) -> Result<(), tokio::task::JoinError> {
        let mut groups = facts.pods().groups();
        sizes.fill(&self.templates.client, &mut groups).await;
        let groups = Arc::new(groups);
        let decisions = self.decided(facts, &groups).await?;
        let by_key: BTreeMap<&GroupKey, &Group> =
            groups.iter().map(|group| (&group.key, group)).collect();
        let pairs = decisions.iter().filter_map(|it| Some((it, *by_key.get(&it.group)?)));
        let outcomes: Vec<_> = stream::iter(pairs)
            .map(async |(decision, group)| (group, self.act(decision, group).await))
            .buffer_unordered(GROUPS_TOGETHER)
            .collect()
            .await;
        let waiting: Vec<(&Group, Why)> =
            outcomes.into_iter().filter_map(|(group, why)| Some((group, why?))).collect();
        self.metrics.gangs.set_waiting(waiting.iter().map(|(_, why)| why.reason()));
        told.tell(&decisions, &by_key, &waiting).await;
        Ok(())
    }

    /// Decides beside the tasks that answer requests: it may take a second.
    async fn decided(
        &self,
        facts: &Arc<Facts>,
        groups: &Arc<Vec<Group>>,
    ) -> Result<Vec<Decision>, tokio::task::JoinError> {
        let (facts, groups) = (Arc::clone(facts), Arc::clone(groups));
        let (view, rules) = (self.templates.view.clone(), self.rules);
        tokio::task::spawn_blocking(move || decided(&view, &facts, &groups, &rules)).await
    }
}

fn decided(view: &SharedView, facts: &Facts, groups: &[Group], rules: &Rules) -> Vec<Decision> {
    if !groups.iter().any(Group::is_open) {
        return Vec::new();
    }
    let view = view.read();
    let (pods, nodes) = (facts.pods(), facts.nodes());
    decide(groups, Cluster::new(&view, &pods, &nodes), rules, Timestamp::now())
}
