//! Starts the tests' control plane and keeps it running, for inspection with kubectl.

use std::process::ExitCode;

use clap::Parser;
use tests::{ControlPlane, Options};

/// Run a control plane until Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// Print the process IDs in one line instead of the kubeconfig.
    #[arg(long)]
    print_pids: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match hold(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

#[expect(clippy::print_stdout, reason = "a command line program")]
async fn hold(args: &Args) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    if args.print_pids {
        let pids: Vec<String> = plane.pids().iter().map(u32::to_string).collect();
        println!("{}", pids.join(" "));
    } else {
        println!("export KUBECONFIG={}", plane.kubeconfig().display());
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a command line program")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
