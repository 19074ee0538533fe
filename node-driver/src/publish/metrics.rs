//! Metrics of publication at `/metrics`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use publication::health::Problem;

/// The metrics of one driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    /// NICs in the slices.
    pub(crate) devices: Gauge,
    /// NICs among them that are tainted.
    pub(crate) tainted_devices: Gauge,
    /// NICs per problem.
    problems: Family<ProblemLabel, Gauge>,
    /// NICs that are not published, per reason.
    withheld: Family<ReasonLabel, Gauge>,
    /// Problems that appeared or disappeared.
    pub(crate) notices: Counter,
    /// Anomalies of the machine.
    pub(crate) anomalies: Gauge,
    /// Virtual functions that are wanted but missing.
    pub(crate) missing_functions: Gauge,
    /// Reads of the machine.
    pub(crate) looks: Counter,
    /// Objects written.
    pub(crate) writes: Counter,
    /// Publications that failed.
    pub(crate) failures: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabel {
    problem: &'static str,
}

impl Metrics {
    /// The gauge of a problem.
    pub(crate) fn problems_of(&self, problem: Problem) -> Gauge {
        self.problems.get_or_create(&ProblemLabel { problem: problem.word() }).clone()
    }

    /// Counts the NICs that are not published, by these reasons.
    pub(crate) fn count_withheld(&self, reasons: impl Iterator<Item = &'static str>) {
        self.withheld.clear();
        for reason in reasons {
            self.withheld.get_or_create(&ReasonLabel { reason }).inc();
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("dranet_driver");
        registry.register(
            "published_devices",
            "NICs in the ResourceSlices",
            metrics.devices.clone(),
        );
        registry.register(
            "tainted_devices",
            "NICs that are tainted",
            metrics.tainted_devices.clone(),
        );
        registry.register(
            "withheld_devices",
            "NICs that are not published, by reason",
            metrics.withheld.clone(),
        );
        registry.register("device_problems", "NICs by problem", metrics.problems.clone());
        registry.register(
            "problem_changes",
            "Problems of NICs that appeared or disappeared",
            metrics.notices.clone(),
        );
        registry.register(
            "anomalies",
            "Inconsistencies in the machine's data",
            metrics.anomalies.clone(),
        );
        registry.register(
            "missing_virtual_functions",
            "Virtual functions that --virtual-functions requests but that do not exist",
            metrics.missing_functions.clone(),
        );
        registry.register("looks", "Reads of the machine", metrics.looks.clone());
        registry.register("writes", "Objects written to the API", metrics.writes.clone());
        registry.register("failures", "Publications that failed", metrics.failures.clone());
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn as_served() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.devices.set(4);
        metrics.writes.inc_by(2);
        metrics.problems_of(Problem::PortDown).set(1);
        metrics.count_withheld(["uplink", "uplink"].into_iter());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        insta::assert_snapshot!(text);
    }
}
