//! Measures how fast the extender responds: requests over plain HTTP on loopback, as deployed, for
//! an inventory of thousands of half-used nodes. Also measures how many pods per second the
//! scheduler binds with it, with an extender that does nothing, and without any.

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
    /// Number of starts until the extender is ready.
    #[arg(long, default_value_t = 5)]
    starts: u32,
    /// Requests per shape for each figure.
    #[arg(long, default_value_t = 50)]
    requests: usize,
    /// How often the use of devices changes on every node.
    #[arg(long, default_value_t = 3)]
    changes: usize,
    /// Nodes of the cluster in which the scheduler is measured; 0 skips it.
    #[arg(long, default_value_t = 1000)]
    scheduler_nodes: usize,
    /// Pods to bind each time.
    #[arg(long, default_value_t = 300)]
    pods: usize,
    /// Number of measurements with each extender.
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
