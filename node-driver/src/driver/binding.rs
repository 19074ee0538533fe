//! How this node is set to bind its NICs: by the flags, and by the node's labels.

use crate::args::Args;
use crate::facts::node::get_node;
use cluster_model::node_labels::NodeLabels;
use kube::Client;
use process::chain::Chain;
use publication::judge::BindNics;
use publication::node::NodeIdentity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Time between reads of the node's labels.
pub(super) const LABELS_PERIOD: Duration = Duration::from_mins(1);

/// The setting.
#[derive(Clone, Debug, Default)]
pub(super) struct NicBinding {
    pub(super) by_default: BindNics,
    late_nodes: Vec<NodeLabels>,
    is_selected: Arc<AtomicBool>,
}

impl NicBinding {
    /// The setting of a node with these labels.
    pub(super) fn new(args: &Args, node: &NodeIdentity) -> Self {
        let binding = Self {
            by_default: args.nics.bind_nics,
            late_nodes: args.late_nodes.clone(),
            ..Self::default()
        };
        binding.select(node);
        binding
    }

    /// Returns true if that changed something.
    fn select(&self, node: &NodeIdentity) -> bool {
        let is_selected = self.late_nodes.iter().any(|labels| labels.select(&node.labels));
        self.is_selected.swap(is_selected, Ordering::Relaxed) != is_selected
    }

    pub(super) fn wanted(&self) -> BindNics {
        if self.is_selected.load(Ordering::Relaxed) { BindNics::Late } else { self.by_default }
    }

    /// Reads the node's labels again from time to time, if they matter. While they cannot be read, they
    /// count as unchanged.
    pub(super) async fn follow(
        self,
        (client, node): (Client, String),
        wake: Arc<Notify>,
        period: Duration,
    ) {
        while !self.late_nodes.is_empty() {
            sleep(period).await;
            match get_node(&client, &node).await {
                Ok(node) if self.select(&node) => wake.notify_one(),
                Ok(_) => {}
                Err(error) => tracing::debug!(error = %Chain(&error), "Labels not read"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
