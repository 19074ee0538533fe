//! The person's view of the cluster: what `kubectl dranet` prints.
//!
//! It holds no logic of its own: the graph is topology-graph's, the plan is
//! admission's, the prediction the allocator's. Each command returns its text.

pub mod args;
mod graph;
mod plan;
mod source;
mod text;

use args::{Args, Command};

/// Runs a command and returns what it prints.
pub async fn run(args: Args) -> anyhow::Result<String> {
    match args.command {
        Command::Graph(args) => graph::run(args).await,
        Command::Plan(args) => plan::run(args).await,
    }
}
