//! What admission counts.

use kube::core::admission::AdmissionResponse;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Instant;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Outcome {
    /// Let through with a patch.
    Patched,
    /// Let through as it was.
    Unchanged,
    /// Refused for a reason that the user can act on.
    Denied,
    /// Refused since the template could not be made.
    Failed,
    /// Not understood.
    Malformed,
    /// The view was not whole yet.
    Unready,
}

impl Outcome {
    pub(super) fn of(response: &AdmissionResponse) -> Self {
        match &response.patch {
            _ if !response.allowed => Self::Denied,
            Some(patch) if patch != b"[]" => Self::Patched,
            _ => Self::Unchanged,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: Outcome,
}

/// The counters of the webhook.
#[derive(Debug)]
pub(super) struct Metrics {
    requests: Family<Labels, Counter>,
    templates: Counter,
    seconds: Histogram,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        // From 0.1 ms to 3 s: a plan takes well under a millisecond, a create
        // of a template some, the API server gives up after ten seconds.
        let seconds = Histogram::new(exponential_buckets(1e-4, 2.0, 16));
        let metrics = Self { requests: Family::default(), templates: Counter::default(), seconds };
        registry.register("requests", "Pods reviewed", metrics.requests.clone());
        registry.register("templates_created", "Templates created", metrics.templates.clone());
        let help = "Time to answer a request";
        registry.register_with_unit("request", help, Unit::Seconds, metrics.seconds.clone());
        metrics
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.requests.get_or_create(&Labels { outcome }).inc();
    }

    pub(super) fn count_template(&self, created: bool) {
        self.templates.inc_by(u64::from(created));
    }

    /// A guard that observes the time until it is dropped.
    pub(super) fn start(&self) -> Timer<'_> {
        Timer { histogram: &self.seconds, start: Instant::now() }
    }
}

/// Observes the time of one request.
#[derive(Debug)]
pub(super) struct Timer<'a> {
    histogram: &'a Histogram,
    start: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.histogram.observe(self.start.elapsed().as_secs_f64());
    }
}
