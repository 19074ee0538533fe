//! Metrics of claim preparation at `/metrics`.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// The metrics of one plugin. Clones share them.
#[derive(Clone, Debug)]
pub struct PluginMetrics {
    requests: Family<Request, Counter>,
    durations: Family<Labels, Histogram>,
    /// Claims in the checkpoint.
    pub claims: Gauge,
    /// Network namespaces of pods that are held open.
    pub namespaces: Gauge,
    /// Whether the container runtime has registered this driver as an NRI plugin.
    pub nri: Gauge,
}

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Method {
    /// Prepare a claim.
    Prepare,
    /// Unprepare a claim.
    Unprepare,
    /// Hold the namespace of a pod whose interfaces move, record that they have moved, or
    /// move them.
    Attach,
    /// Take interfaces back from a sandbox that stops.
    Detach,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// It was refused or it failed.
    Failure,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: Method,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: Method,
}

/// From a millisecond to half of the kubelet's timeout.
const BUCKETS: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0];

impl Default for PluginMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            claims: Gauge::default(),
            namespaces: Gauge::default(),
            nri: Gauge::default(),
        }
    }
}

impl PluginMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("dranet_plugin");
        registry.register(
            "requests",
            "Claims prepared and unprepared, hooks and sandboxes answered, by outcome",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Duration of the requests",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register("claims", "Claims in the checkpoint", self.claims.clone());
        registry.register(
            "namespaces",
            "Network namespaces of pods that are held open",
            self.namespaces.clone(),
        );
        registry.register(
            "nri_registered",
            "Whether the container runtime has registered this driver as an NRI plugin",
            self.nri.clone(),
        );
    }

    /// Records one request.
    pub fn observe(&self, method: Method, is_done: bool, took: Duration) {
        let outcome = if is_done { Outcome::Success } else { Outcome::Failure };
        self.requests.get_or_create(&Request { method, outcome }).inc();
        self.durations.get_or_create(&Labels { method }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn as_served() {
        let mut registry = Registry::default();
        let metrics = PluginMetrics::default();
        metrics.register(&mut registry);
        // One series per family, because the series of a family have no order.
        metrics.observe(Method::Prepare, false, Duration::from_millis(7));
        metrics.observe(Method::Prepare, false, Duration::from_secs(40));
        metrics.claims.set(1);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        insta::assert_snapshot!(text);
    }
}
