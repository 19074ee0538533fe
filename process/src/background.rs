//! Work that gives way to what somebody waits for.

use rustix::process::{getpriority_process, setpriority_process};
use std::future::Future;
use std::io;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Added to the niceness of the program: a third of the processor time of a thread that answers
/// requests, where there is not enough for both (`sched_prio_to_weight` in kernel/sched/core.c).
const NICENESS: i32 = 5;

/// Threads of their own at a lower priority, for tasks that no request waits for.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts a thread for each processor, and others as tasks block.
    ///
    /// # Errors
    ///
    /// Where the kernel gives no thread.
    pub fn start() -> io::Result<Self> {
        // Not added by each thread to its own: a thread begins with its parent's.
        let niceness = getpriority_process(None)? + NICENESS;
        let runtime = Builder::new_multi_thread()
            .thread_name("background")
            .on_thread_start(move || give_way(niceness))
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs a task there, until it ends or this is dropped.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(task)
    }
}

impl Drop for Background {
    /// Does not wait for a thread that blocks: the program ends.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// On Linux niceness is a thread's own.
fn give_way(niceness: i32) {
    if let Err(error) = setpriority_process(None, niceness) {
        tracing::warn!(%error, "Background work runs at normal priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_threads_are_nicer_and_others_are_not() {
        let niceness = || getpriority_process(None).unwrap();
        let before = niceness();
        let background = Background::start().unwrap();
        let worker = background.spawn(async move {
            (niceness(), tokio::task::spawn_blocking(niceness).await.unwrap())
        });
        let lower = (before + NICENESS).min(19);
        assert_eq!(worker.await.unwrap(), (lower, lower));
        assert_eq!(niceness(), before);
    }
}
