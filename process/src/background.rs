//! Low-priority threads for work that no request waits for.

use rustix::process::{getpriority_process, setpriority_process};
use std::future::Future;
use std::io;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Added to the program's niceness. If there is not enough processor time for both, a background
/// thread gets a third of the time of a thread that answers requests (`sched_prio_to_weight` in
/// kernel/sched/core.c).
const NICENESS: i32 = 5;

/// Separate threads with a lower priority, for tasks that no request waits for.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts one thread per processor, and more when tasks block.
    ///
    /// # Errors
    ///
    /// If the kernel cannot create a thread.
    pub fn start() -> io::Result<Self> {
        // Computed once: a thread inherits its parent's niceness, so adding to it could accumulate.
        let niceness = getpriority_process(None)? + NICENESS;
        let runtime = Builder::new_multi_thread()
            .thread_name("background")
            .on_thread_start(move || give_way(niceness))
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs a task on these threads until it ends or `self` is dropped.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(task)
    }
}

impl Drop for Background {
    /// Does not wait for blocked threads, since the program is about to end.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the calling thread; on Linux, niceness belongs to a thread.
fn give_way(niceness: i32) {
    if let Err(error) = setpriority_process(None, niceness) {
        tracing::warn!(%error, "Background work runs at normal priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn background_threads_run_at_lower_priority() {
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
