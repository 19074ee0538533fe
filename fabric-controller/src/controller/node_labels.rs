//! Writes the labels of [`crate::node_label`], [`crate::level_labels`] and
//! [`crate::machine_labels`], at a limited rate.

use super::conflicts::Told;
use super::{Controller, PAUSE, next_pause};
use crate::level_labels;
use crate::machine_labels;
use crate::node_label;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use process::chain::Chain;
use process::requests::{ApiError, writing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// The minimum time between comparisons of machine labels, which need the devices of all nodes and
/// rarely change.
const MACHINES_PAUSE: Duration = Duration::from_secs(30);
/// The number of concurrent requests.
const TOGETHER: usize = 8;
/// The interval between log lines about progress.
const PROGRESS: Duration = Duration::from_secs(10);

impl Controller {
    /// Labels nodes without end, and reports nodes whose sources disagree.
    pub(super) async fn label_nodes(&self) {
        // When machine labels are due to be compared, and the epoch of their last comparison.
        let (mut machines_due, mut machines_seen) = (Instant::now(), None);
        let mut told = Told::new();
        let mut pause = PAUSE;
        loop {
            let seen = self.view.read().revision();
            let with_machines = machines_seen != Some(seen.epoch) && Instant::now() >= machines_due;
            let due = self.due_labels(with_machines);
            self.metrics.set_unlabelled(due.len());
            let is_labelled = due.is_empty() || self.label_all(due).await;
            let is_done = is_labelled && self.report_conflicts(&mut told).await;
            if with_machines && is_labelled {
                machines_due = Instant::now() + MACHINES_PAUSE;
                machines_seen = Some(seen.epoch);
            }
            pause = next_pause(pause, is_labelled);
            tokio::time::sleep(pause).await;
            if !is_done {
                continue;
            }
            let later = async {
                if machines_seen == Some(seen.epoch) {
                    return std::future::pending().await;
                }
                tokio::time::sleep_until(machines_due.into()).await;
            };
            tokio::select! {
                () = self.view.changed_since(seen, |now| (now.epoch, now.levels)) => {}
                () = later => {}
            }
        }
    }

    /// The labels to merge into each node.
    fn due_labels(&self, with_machines: bool) -> Vec<(String, Value)> {
        let view = self.view.read();
        let mut due: BTreeMap<String, Value> = node_label::due(&view).into_iter().collect();
        let levels = level_labels::due(&view, &self.level_sources);
        let machines = with_machines.then(|| machine_labels::due(&view));
        for (node, labels) in levels.into_iter().chain(machines.into_iter().flatten()) {
            let all = due.entry(node).or_insert_with(|| json!({}));
            for (key, value) in labels.as_object().into_iter().flatten() {
                all[key] = value.clone();
            }
        }
        due.into_iter().collect()
    }

    /// Writes labels. Returns true if all were written.
    async fn label_all(&self, due: Vec<(String, Value)>) -> bool {
        let nodes = due.len();
        tracing::info!(
            nodes,
            rate = self.label_rate,
            "Labelling nodes with their fabrics and machines"
        );
        let mut pace = interval(Duration::from_secs(1) / self.label_rate.get());
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let paced = stream::unfold((due.into_iter(), pace), async |(mut due, mut pace)| {
            let next = due.next()?;
            pace.tick().await;
            Some((next, (due, pace)))
        });
        let written = paced
            .map(async |(node, labels)| {
                let outcome = self.label(&node, &labels).await;
                if let Err(error) = &outcome {
                    tracing::warn!(error = %Chain(error), "Failed to label a node; trying again");
                }
                outcome.is_ok()
            })
            .buffer_unordered(TOGETHER);
        let mut written = std::pin::pin!(written);
        let (mut tried, mut labelled, mut said) = (0, 0, Instant::now());
        while let Some(done) = written.next().await {
            tried += 1;
            labelled += usize::from(done);
            self.metrics.set_unlabelled(nodes - labelled);
            if said.elapsed() >= PROGRESS && tried < nodes {
                tracing::info!(labelled, tried, nodes, "Labelling nodes");
                said = Instant::now();
            }
        }
        tracing::info!(labelled, nodes, "Nodes labelled with their fabrics and machines");
        labelled == nodes
    }

    async fn label(&self, node: &str, labels: &Value) -> Result<(), ApiError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        match nodes.patch_metadata(node, &PatchParams::default(), &patch).await {
            Ok(_) => {
                tracing::debug!(node, %labels, "Labelled a node");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(writing("Node", node)(error)),
        }
    }
}
