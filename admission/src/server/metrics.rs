//! Metrics of admission.

use kube::core::admission::AdmissionResponse;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Instant;

use super::templates::TemplateWrite;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Outcome {
    /// Admitted with a patch.
    Patched,
    /// Admitted unchanged.
    Unchanged,
    /// A hand-written claim, admitted with warnings.
    Warned,
    /// Denied for a reason that the user can act on.
    Denied,
    /// Denied because the template could not be created.
    Failed,
    /// The request could not be parsed.
    Malformed,
    /// The view was not complete yet.
    Unready,
}

impl Outcome {
    pub(super) fn new(response: &AdmissionResponse) -> Self {
        match &response.patch {
            _ if !response.allowed => Self::Denied,
            Some(patch) if patch != b"[]" => Self::Patched,
            _ => Self::Unchanged,
        }
    }
}

/// What the leader did with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum TemplateOutcome {
    /// Marked: nothing refers to it.
    Marked,
    /// The mark was removed: something refers to it again.
    Kept,
    /// Deleted, an hour after it was marked.
    Collected,
    /// Recreated for a pod that refers to it.
    Healed,
    /// Missing, and cannot be recreated.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JoinLabel {
    join: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabel {
    hit: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TemplateLabel {
    outcome: TemplateOutcome,
}

/// Metrics of the webhook.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<OutcomeLabel, Counter>,
    denials: Family<ReasonLabel, Counter>,
    plans: Family<JoinLabel, Counter>,
    pub(super) cache: PlanCache,
    templates: Counter,
    kept: Family<TemplateLabel, Counter>,
    seconds: Histogram,
}

/// Counts how often a plan was found in the cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanCache(Family<CacheLabel, Counter>);

impl PlanCache {
    pub(super) fn count(&self, hit: bool) {
        self.0.get_or_create(&CacheLabel { hit }).inc();
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From 0.1 ms to 3 s: a plan takes well under a millisecond, creating a template
        // several. The API server gives up after ten seconds.
        let seconds = Histogram::new(exponential_buckets(1e-4, 2.0, 16));
        let metrics = Self {
            requests: Family::default(),
            denials: Family::default(),
            plans: Family::default(),
            cache: PlanCache::default(),
            templates: Counter::default(),
            kept: Family::default(),
            seconds,
        };
        registry.register("requests", "Objects reviewed", metrics.requests.clone());
        let help = "Pods denied, by the annotation that cannot be served";
        registry.register("denials", help, metrics.denials.clone());
        registry.register("plans", "Pods planned, by the join", metrics.plans.clone());
        let help = "Plan lookups, by whether the plan was cached";
        registry.register("plan_cache", help, metrics.cache.0.clone());
        registry.register("templates_created", "Templates created", metrics.templates.clone());
        let help = "Actions of the leader on templates";
        registry.register("template_lifecycle", help, metrics.kept.clone());
        let help = "Time to answer a request";
        registry.register_with_unit("request", help, Unit::Seconds, metrics.seconds.clone());
        metrics
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.requests.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn count_denial(&self, reason: &'static str) {
        self.denials.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn count_plan(&self, join: &'static str) {
        self.plans.get_or_create(&JoinLabel { join }).inc();
    }

    pub(super) fn count_template(&self, written: TemplateWrite) {
        self.templates.inc_by(u64::from(written == TemplateWrite::Created));
    }

    pub(crate) fn count_outcome(&self, outcome: TemplateOutcome) {
        self.kept.get_or_create(&TemplateLabel { outcome }).inc();
    }

    /// Starts a timer that records the time when it is dropped.
    pub(super) fn start(&self) -> Timer<'_> {
        Timer { histogram: &self.seconds, start: Instant::now() }
    }
}

/// Measures the time of one request.
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

#[cfg(test)]
impl PlanCache {
    pub(super) fn counted(&self, hit: bool) -> u64 {
        self.0.get_or_create(&CacheLabel { hit }).get()
    }
}
