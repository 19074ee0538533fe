//! How fast the extender answers, with what kube-scheduler does beside it: requests over
//! plain HTTP on loopback, as deployed, with an inventory of thousands of half-used nodes;
//! and the pods that the scheduler binds a second with it, with an extender that does
//! nothing, and with none.

mod cluster;
mod http;
mod idle;
mod requests;
mod throughput;

use std::process::ExitCode;

use clap::Parser;
use tests::figures::refuse;

/// Measure the extender.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Nodes with 8 GPUs and 8 NICs.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Requests of each of the four shapes for each figure.
    #[arg(long, default_value_t = 50)]
    requests: usize,
    /// How often what is in use changes on every node.
    #[arg(long, default_value_t = 3)]
    changes: usize,
    /// Nodes of the cluster whose scheduler is measured; 0 leaves it out.
    #[arg(long, default_value_t = 1000)]
    scheduler_nodes: usize,
    /// Pods that it binds each time.
    #[arg(long, default_value_t = 300)]
    pods: usize,
    /// How often it is measured with each extender.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

async fn measure(args: Args) -> anyhow::Result<()> {
    if args.nodes > 0 {
        requests::measure(args).await?;
    }
    if args.scheduler_nodes > 0 {
        throughput::measure(args).await?;
    }
    Ok(())
}
