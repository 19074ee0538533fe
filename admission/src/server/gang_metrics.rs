//! What is counted of groups.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;

/// What came of a look at a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Chosen {
    /// All of it was placed.
    Whole,
    /// Pods that came later went to the rest.
    Joined,
    /// It was placed without its size being known.
    OneByOne,
    /// It was placed before it was whole, after a long wait.
    Late,
    /// It was evicted, to be placed anew.
    Moved,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChosenLabel {
    outcome: Chosen,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The counters of groups.
#[derive(Clone, Debug)]
pub(crate) struct GangMetrics {
    waiting: Family<ReasonLabel, Gauge>,
    choices: Family<ChosenLabel, Counter>,
    splits_prevented: Counter,
    gates: Counter,
    wait: Histogram,
}

impl GangMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            waiting: Family::default(),
            choices: Family::default(),
            splits_prevented: Counter::default(),
            gates: Counter::default(),
            // From 0.1 s to 2 days.
            wait: Histogram::new(exponential_buckets(0.1, 2.0, 21)),
        };
        let help = "Groups with pods that wait for a fabric, by reason, on the replica that leads";
        registry.register("fabric_groups_waiting", help, metrics.waiting.clone());
        let help = "Fabrics chosen for groups, by what was chosen";
        registry.register("fabric_choices", help, metrics.choices.clone());
        let help = "Times that a group would have been split, had its gates been lifted as decided";
        registry.register("fabric_splits_prevented", help, metrics.splits_prevented.clone());
        let help = "Scheduling gates lifted";
        registry.register("fabric_gates_lifted", help, metrics.gates.clone());
        let help = "Time from the first pod of a group to the choice of its fabric";
        registry.register_with_unit("fabric_wait", help, Unit::Seconds, metrics.wait.clone());
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

    pub(crate) fn count(&self, outcome: Chosen) {
        self.choices.get_or_create(&ChosenLabel { outcome }).inc();
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

    /// A guard that forgets who waits when this replica leads no more.
    pub(crate) fn while_leading(&self) -> WhileLeading<'_> {
        WhileLeading(self)
    }
}

/// See [`GangMetrics::while_leading`].
#[derive(Debug)]
pub(crate) struct WhileLeading<'a>(&'a GangMetrics);

impl Drop for WhileLeading<'_> {
    fn drop(&mut self) {
        self.0.waiting.clear();
    }
}
