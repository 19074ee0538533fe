//! Metrics of the extender.

use crate::answer::{Answer, Reason};
use crate::in_flight::{Assumptions, Landed};
use crate::learn::BoundPod;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Score {
    Predicted,
    Likely,
    Neutral,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScoreLabels {
    score: Score,
}

/// How a forecast compares with the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Result {
    /// The pod got the forecast devices.
    Same,
    /// The pod got other devices, and the node had changed in between.
    Changed,
    /// The pod got other devices without an explanation.
    Different,
    /// The pod went to a node that was not a candidate.
    Elsewhere,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: Result,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Assumption {
    /// The pod is on the assumed node.
    Right,
    /// The pod is on another node, its claim was deleted, or the scheduler asked again.
    Wrong,
    /// The pod got no devices in time.
    Expired,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AssumptionLabels {
    assumption: Assumption,
}

/// The metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    nodes: Family<ScoreLabels, Counter>,
    hits: Counter,
    seconds: Histogram,
    forecasts: Family<ResultLabels, Counter>,
    paths: Family<PathLabels, Counter>,
    assumptions: Family<AssumptionLabels, Counter>,
    late: Counter,
    scan: Gauge<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From 0.1 ms to 3 s: the scheduler waits at most five seconds.
        let metrics = Self {
            nodes: Family::default(),
            hits: Counter::default(),
            seconds: Histogram::new(exponential_buckets(1e-4, 2.0, 16)),
            forecasts: Family::default(),
            paths: Family::default(),
            assumptions: Family::default(),
            late: Counter::default(),
            scan: Gauge::default(),
        };
        registry.register("nodes_scored", "Nodes scored", metrics.nodes.clone());
        let help = "Nodes scored with a cached forecast";
        registry.register("cache_hits", help, metrics.hits.clone());
        let help = "Time to answer a request";
        registry.register_with_unit("request", help, Unit::Seconds, metrics.seconds.clone());
        let help = "Pods with claims that were bound, by how the devices compare with the forecast";
        registry.register("forecasts", help, metrics.forecasts.clone());
        let help = "Pods with GPUs and NICs that were bound, by the farthest path of their pairs";
        registry.register("pod_paths", help, metrics.paths.clone());
        let help = "Assumptions that a pod is on the node ranked first, by how they ended";
        registry.register("assumptions", help, metrics.assumptions.clone());
        let help = "Requests with neutral answers because no time was left";
        registry.register("late", help, metrics.late.clone());
        let help = "When the last scan of the cluster that has ended began, in Unix time";
        registry.register_with_unit(
            "last_scan_timestamp",
            help,
            Unit::Seconds,
            metrics.scan.clone(),
        );
        metrics
    }

    pub(crate) fn answered(&self, answer: &Answer, time: Duration) {
        let mut counts = [(Score::Predicted, 0), (Score::Likely, 0), (Score::Neutral, 0)];
        for scored in &answer.nodes {
            match &scored.reason {
                Reason::Predicted(..) => counts[0].1 += 1,
                Reason::Likely(..) => counts[1].1 += 1,
                Reason::Unknown(_) => counts[2].1 += 1,
            }
        }
        for (score, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.nodes.get_or_create(&ScoreLabels { score }).inc_by(count);
        }
        self.hits.inc_by(answer.hits as u64);
        self.seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn late(&self) {
        self.late.inc();
    }

    pub(crate) fn landed(&self, landed: &Landed) {
        let result = match &landed.forecast {
            None => Result::Elsewhere,
            Some(of) if of.is_right => Result::Same,
            Some(of) if of.is_certain => Result::Different,
            Some(_) => Result::Changed,
        };
        self.forecasts.get_or_create(&ResultLabels { result }).inc();
    }

    /// A scan has ended that began at this time.
    pub(crate) fn scanned(&self, begun: SystemTime) {
        // A clock before 1970 shows 0.
        let since = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.scan.set(since.as_secs_f64());
    }

    pub(crate) fn bound(&self, pod: &BoundPod) {
        if let Some(path) = pod.path {
            self.paths.get_or_create(&PathLabels { path: path.to_string() }).inc();
        }
    }

    pub(crate) fn assumed(&self, ended: Assumptions) {
        let Assumptions { right, wrong, expired } = ended;
        for (assumption, count) in
            [(Assumption::Right, right), (Assumption::Wrong, wrong), (Assumption::Expired, expired)]
        {
            self.assumptions.get_or_create(&AssumptionLabels { assumption }).inc_by(count);
        }
    }
}
