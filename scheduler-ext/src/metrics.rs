//! What the extender counts.

use crate::score::Basis;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Score {
    Predicted,
    Likely,
    Neutral,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    score: Score,
}

/// The counters of the extender.
#[derive(Debug)]
pub(crate) struct Metrics {
    nodes: Family<Labels, Counter>,
    seconds: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From 0.1 ms to 3 s: the scheduler waits at most five seconds.
        let seconds = Histogram::new(exponential_buckets(1e-4, 2.0, 16));
        let metrics = Self { nodes: Family::default(), seconds };
        registry.register("nodes_scored", "Nodes scored", metrics.nodes.clone());
        let help = "Time to answer a request";
        registry.register_with_unit("request", help, Unit::Seconds, metrics.seconds.clone());
        metrics
    }

    pub(crate) fn count(&self, basis: Basis) {
        let score = match basis {
            Basis::Predicted => Score::Predicted,
            Basis::Likely => Score::Likely,
            Basis::Unknown => Score::Neutral,
        };
        self.nodes.get_or_create(&Labels { score }).inc();
    }

    pub(crate) fn observe(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }
}
