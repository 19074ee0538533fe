//! Waits for a condition by polling, with a deadline. The timeout error contains the last status.
//! Tests use it instead of a fixed time; times that a test chooses at random are not waits.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The polling interval.
const INTERVAL: Duration = Duration::from_millis(50);

/// The result of checking a condition.
#[derive(Debug)]
pub enum Check<T> {
    /// The condition holds.
    Done(T),
    /// The condition does not hold yet; the status describes what is missing.
    NotYet(String),
}

impl Check<()> {
    /// Done if the condition holds, otherwise the status.
    pub fn that(holds: bool, status: impl FnOnce() -> String) -> Self {
        if holds { Self::Done(()) } else { Self::NotYet(status()) }
    }
}

/// Polls until the check is done. The timeout error contains the last status.
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
    async fn the_error_of_a_timeout_contains_the_last_status() {
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
