//! Metrics of the controller.

use crate::protocol::step::End;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Why pods may have been evicted for nothing.
const IN_VAIN: [&str; 7] =
    ["PodGone", "RulesMissing", "Changed", "Refused", "NotFreed", "NotBound", "Lost"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    results: Family<ResultLabel, Counter>,
    victims: Counter,
    moves: Counter,
    in_vain: Family<ReasonLabel, Counter>,
    time: Histogram,
    begun: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            results: Family::default(),
            victims: Counter::default(),
            moves: Counter::default(),
            in_vain: Family::default(),
            // From 1 s to 2 hours.
            time: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            begun: Gauge::default(),
        };
        // So that Prometheus sees the first increase.
        for reason in IN_VAIN {
            metrics.count_in_vain(reason, 0);
        }
        let help = "Preemptions that have ended, by result";
        registry.register("preemptions", help, metrics.results.clone());
        let help = "Pods evicted for pods that wait for devices";
        registry.register("preemption_victims", help, metrics.victims.clone());
        let help = "Pods evicted so that they move and others fit";
        registry.register("moves", help, metrics.moves.clone());
        let help = "Pods evicted for pods that were not bound then, by reason";
        registry.register("evicted_without_bound_pod", help, metrics.in_vain.clone());
        let help = "Time from the start of a preemption until its pods are bound";
        registry.register_with_unit("preemption", help, Unit::Seconds, metrics.time.clone());
        let help = "Preemptions that have begun and not ended, on the leading replica";
        registry.register("preemptions_begun", help, metrics.begun.clone());
        metrics
    }

    pub(crate) fn set_begun(&self, preemptions: usize) {
        self.begun.set(i64::try_from(preemptions).unwrap_or(i64::MAX));
    }

    /// Counts a pod that was evicted, or that moves.
    pub(crate) fn count_evicted(&self, moves: bool) {
        if moves { &self.moves } else { &self.victims }.inc();
    }

    /// Counts the end of a preemption that has begun this many seconds ago. `evicted` is how many pods
    /// have left for it.
    pub(crate) fn count_end(&self, end: &End, seconds: f64, evicted: usize) {
        self.count_result(match end {
            End::Bound => "Bound",
            End::Released => "Released",
            End::Stopped(why) => why.reason(),
        });
        match end {
            End::Bound => self.time.observe(seconds),
            End::Stopped(why) if why.leaves_pods_unbound() => {
                self.count_in_vain(why.reason(), evicted);
            }
            End::Released | End::Stopped(_) => {}
        }
    }

    /// Counts a result.
    pub(crate) fn count_result(&self, result: &'static str) {
        self.results.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts pods that were evicted for nothing.
    pub(crate) fn count_in_vain(&self, reason: &'static str, evicted: usize) {
        self.in_vain.get_or_create(&ReasonLabel { reason }).inc_by(evicted as u64);
    }

    /// Returns a guard that resets the leader's metrics when this replica stops leading.
    pub(crate) fn while_leading(&self) -> WhileLeading<'_> {
        WhileLeading(self)
    }
}

/// See [`Metrics::while_leading`].
#[derive(Debug)]
pub(crate) struct WhileLeading<'a>(&'a Metrics);

impl Drop for WhileLeading<'_> {
    fn drop(&mut self) {
        self.0.begun.set(0);
    }
}
