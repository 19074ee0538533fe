//! The rim of a process: signals in, exit code out.

use crate::memory;
use std::future::Future;
use std::io;
use std::process::{ExitCode, Termination};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
    crate::tls::install_crypto_provider();
    let runtime = runtime.enable_all().build().map_err(anyhow::Error::from);
    end(runtime.and_then(|runtime| runtime.block_on(program)))
}

/// Turns the outcome of a program into its exit code.
pub fn end<T: Termination>(outcome: anyhow::Result<T>) -> ExitCode {
    match outcome {
        Ok(done) => done.report(),
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the one line that says why the program ends")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", one_line(error));
    ExitCode::FAILURE
}

/// An error and its causes on one line, each cause once.
///
/// A cause may span lines (parsers show the place): its first line says it. And
/// some libraries repeat their source in their own text.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let cause = cause.lines().next().unwrap_or_default().trim();
        if line.is_empty() {
            line.push_str(cause);
        } else if !line.contains(cause) {
            line.push_str(": ");
            line.push_str(cause);
        }
    }
    line
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_joined_once_and_on_one_line() {
        let error = anyhow::anyhow!("no such file")
            .context("failed to open `a`: no such file")
            .context("`a` is not valid YAML\n --> a:1")
            .context("failed to start");
        assert_eq!(
            one_line(&error),
            "failed to start: `a` is not valid YAML: failed to open `a`: no such file"
        );
    }
}
