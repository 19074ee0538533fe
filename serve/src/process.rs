//! The rim of a process: signals in, exit code out.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs a program to its end and turns the outcome into an exit code: 0, or 1
/// with the chain of causes on one line of standard error.
pub fn run<F>(program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    crate::tls::install_crypto_provider();
    let outcome = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(program));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the one line that says why the program ends")]
fn fail(error: &anyhow::Error) -> ExitCode {
    // A cause may span lines (YAML errors show the place): the first says it.
    let text = format!("{error:#}");
    eprintln!("error: {}", text.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    ExitCode::FAILURE
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
