//! A program that waits for things: its threads, and the signals that end it.

use crate::exit::end;
use crate::memory;
use std::future::Future;
use std::io;
use std::process::{ExitCode, Termination};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Longest wait for work on other threads after the program has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a program to its end and turns the outcome into an exit code: what the
/// program says, or 1 with the chain of causes on one line of standard error.
/// It has a thread for each processor.
pub fn run<F, T>(program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<T>>,
    T: Termination,
{
    run_on(&mut Builder::new_multi_thread(), program)
}

/// The same where memory counts: with one heap, and on a machine of any size with one
/// thread beside the one that runs the program.
pub fn run_small<F, T>(program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<T>>,
    T: Termination,
{
    memory::share_heap();
    run_on(Builder::new_multi_thread().worker_threads(1), program)
}

fn run_on<F, T>(runtime: &mut Builder, program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<T>>,
    T: Termination,
{
    let ended = runtime.enable_all().build().map_err(anyhow::Error::from).and_then(|runtime| {
        let ended = runtime.block_on(program);
        // A thread that the kernel keeps in a read must not keep the process.
        runtime.shutdown_timeout(GRACE);
        ended
    });
    end(ended)
}

/// A token that is cancelled by SIGTERM or SIGINT.
pub fn stop_on_signal() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("Stopping");
        token.cancel();
    });
    Ok(stop)
}
