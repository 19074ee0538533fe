//! Metrics of the controller.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;

/// The outcome for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// The complete group was placed.
    Whole,
    /// Later pods joined the placed ones.
    Joined,
    /// It was placed without its size being known.
    OneByOne,
    /// It was placed incomplete, after a long wait.
    Late,
    /// Placed on a fabric that an autoscaler must grow first.
    Grows,
    /// It was evicted, to be placed again.
    Evicted,
    /// It got a `PodGroup`, which kube-scheduler places.
    PodGroup,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    waiting: Family<ReasonLabel, Gauge>,
    choices: Family<OutcomeLabel, Counter>,
    splits_prevented: Counter,
    gates: Counter,
    wait: Histogram,
    unlabelled: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            waiting: Family::default(),
            choices: Family::default(),
            splits_prevented: Counter::default(),
            gates: Counter::default(),
            // From 0.1 s to 2 days.
            wait: Histogram::new(exponential_buckets(0.1, 2.0, 21)),
            unlabelled: Gauge::default(),
        };
        let help = "Groups with pods that wait for a fabric, by reason, on the leading replica";
        registry.register("groups_waiting", help, metrics.waiting.clone());
        let help = "Groups placed on a fabric, by outcome";
        registry.register("placements", help, metrics.choices.clone());
        let help = "Decisions that would have split a group and were not carried out";
        registry.register("splits_prevented", help, metrics.splits_prevented.clone());
        let help = "Scheduling gates removed";
        registry.register("gates_removed", help, metrics.gates.clone());
        let help = "Time from the first pod of a group to the choice of its fabric";
        registry.register_with_unit("group_wait", help, Unit::Seconds, metrics.wait.clone());
        let help = "Nodes whose fabric label is not written yet, on the leading replica";
        registry.register("nodes_unlabelled", help, metrics.unlabelled.clone());
        metrics
    }

    pub(crate) fn set_waiting(&self, reasons: impl Iterator<Item = &'static str>) {
        let mut counts: BTreeMap<_, i64> = BTreeMap::new();
        reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
        self.waiting.clear();
        for (reason, count) in counts {
            self.waiting.get_or_create(&ReasonLabel { reason }).set(count);
        }
    }

    pub(crate) fn set_unlabelled(&self, nodes: usize) {
        self.unlabelled.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.choices.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(crate) fn count_split(&self) {
        self.splits_prevented.inc();
    }

    pub(crate) fn count_gates(&self, gates: usize) {
        self.gates.inc_by(gates as u64);
    }

    pub(crate) fn observe_wait(&self, seconds: f64) {
        self.wait.observe(seconds);
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
        self.0.waiting.clear();
        self.0.unlabelled.set(0);
    }
}
