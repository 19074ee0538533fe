//! Waiting on a condition: level-triggered, with a deadline that tells how far
//! it was. Nothing in the tests waits for a length of time instead.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// One look at a condition.
#[derive(Debug)]
pub enum Check<T> {
    /// It holds.
    Done(T),
    /// It does not hold yet, and this is how far it is.
    NotYet(String),
}

impl Check<()> {
    /// Done if it holds, else how far it is.
    pub fn that(holds: bool, status: impl FnOnce() -> String) -> Self {
        if holds { Self::Done(()) } else { Self::NotYet(status()) }
    }
}

/// Polls until done; the error tells what it was still waiting for.
///
/// An error of the check itself ends the wait at once.
pub async fn eventually<T>(
    max: Duration,
    mut check: impl AsyncFnMut() -> anyhow::Result<Check<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + max;
    loop {
        let status = match check().await? {
            Check::Done(value) => return Ok(value),
            Check::NotYet(status) => status,
        };
        anyhow::ensure!(Instant::now() < deadline, "timed out after {max:?}: {status}");
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_of_a_timeout_tells_the_last_status() {
        let mut looks = 0;
        let error = eventually::<()>(Duration::ZERO, async || {
            looks += 1;
            Ok(Check::NotYet(format!("look {looks}")))
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "timed out after 0ns: look 1");
    }

    #[tokio::test]
    async fn an_error_of_the_check_ends_the_wait() {
        let error =
            eventually::<()>(Duration::MAX / 4, async || anyhow::bail!("gone")).await.unwrap_err();
        assert_eq!(error.to_string(), "gone");
    }
}
