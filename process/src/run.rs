//! Runs an asynchronous program: its threads, and the signals that stop it.

use crate::exit::end;
use crate::memory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::future::Future;
use std::io;
use std::process::{ExitCode, Termination};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The longest wait for other threads after the program has ended.
const GRACE: Duration = Duration::from_secs(1);

/// The soft limit of open files, if the hard limit allows it.
const OPEN_FILES: u64 = 65_536;

/// Runs a program and returns its exit code: the program's own, or 1 with the chain of causes on
/// one line of standard error. It uses one thread per processor.
pub fn run<F, T>(program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<T>>,
    T: Termination,
{
    run_on(&mut Builder::new_multi_thread(), program)
}

/// Runs a program with a large state on one heap, and one thread per processor. With a heap per thread, what one
/// thread has freed is not used by the others.
pub fn run_on_one_heap<F, T>(program: F) -> ExitCode
where
    F: Future<Output = anyhow::Result<T>>,
    T: Termination,
{
    memory::share_heap();
    run(program)
}

/// Runs a program with little memory: one heap, and on any machine a single thread besides the main
/// thread.
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
    raise_open_files();
    let ended = runtime.enable_all().build().map_err(anyhow::Error::from).and_then(|runtime| {
        let ended = runtime.block_on(program);
        // A thread blocked in a kernel read must not keep the process alive.
        runtime.shutdown_timeout(GRACE);
        ended
    });
    end(ended)
}

/// Raises the soft limit of open files: container runtimes set it to 1,024, for programs that use
/// `select(2)`. Servers limit their connections themselves.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map_or(OPEN_FILES, |max| max.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < raised) {
        // If this fails, the program works with the old limit.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
}

/// A token that SIGTERM or SIGINT cancels.
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
