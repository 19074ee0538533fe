//! What becomes of pods whose devices were released before they were bound (`--keep=rules`).

use super::Controller;
use crate::protocol::record::Begun;
use crate::protocol::step::{Limits, PodSeen};
use process::requests::ApiError;
use std::time::{Duration, Instant};

/// A preemption whose devices are no longer kept.
#[derive(Debug)]
pub(super) struct Followed {
    begun: Begun,
    /// How many pods have left for it.
    evicted: usize,
    until: Instant,
}

impl Followed {
    pub(super) fn new(begun: &Begun, evicted: usize, limits: &Limits, now: Instant) -> Self {
        let within = Duration::try_from(limits.bound_within).unwrap_or_default();
        Self { begun: begun.clone(), evicted, until: now + within }
    }
}

impl Controller {
    /// Counts the preemptions whose pods are bound, and those whose devices another pod has got.
    pub(super) async fn follow_released(
        &self,
        released: &mut Vec<Followed>,
    ) -> Result<(), ApiError> {
        let mut open = Vec::new();
        for followed in std::mem::take(released) {
            let pods = self.pods_seen(&followed.begun.record.pods).await?;
            let is_over = pods.contains(&PodSeen::Gone) || Instant::now() >= followed.until;
            if pods.iter().all(|pod| matches!(pod, PodSeen::Bound(_))) {
                self.metrics.count_result("BoundLater");
            } else if is_over {
                self.metrics.count_result("Lost");
                self.metrics.count_in_vain("Lost", followed.evicted);
            } else {
                open.push(followed);
            }
        }
        *released = open;
        Ok(())
    }
}
