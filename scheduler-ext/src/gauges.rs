//! Gauges that are computed when `/metrics` is read: free capacity of fabrics, and age of
//! the view.

use crate::expected::Expected;
use crate::learn;
use crate::learned;
use cluster_model::watch::SharedView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// The gauges and the sources of their values.
pub(crate) struct Gauges {
    /// The cluster.
    pub(crate) view: SharedView,
    /// Returns the current expectations.
    pub(crate) expected: Box<dyn Fn() -> Arc<Expected> + Send + Sync>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoomLabels {
    fabric: String,
    shape: String,
    level: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "How many more pods of a common shape, or gangs of them, find each GPU with \
                    its NICs in one cell of this level, over the nodes of the fabric";
        let mut family = encoder.encode_descriptor("room_pods", help, None, MetricType::Gauge)?;
        let expected = (self.expected)();
        for (labels, pods) in &room(expected.as_ref()) {
            ConstGauge::new(*pods).encode(family.encode_family(labels)?)?;
        }
        let help = "Share of all pods that have a shape, as configured and as learned";
        let mut family =
            encoder.encode_descriptor("expected_share", help, None, MetricType::Gauge)?;
        for (labels, share) in &learned::shares(expected.as_ref()) {
            ConstGauge::new(*share).encode(family.encode_family(labels)?)?;
        }
        let help = "Pods with a shape among the last that got devices";
        let mut family = encoder.encode_descriptor("recent_pods", help, None, MetricType::Gauge)?;
        for (labels, pods) in &learned::recent(expected.as_ref()) {
            ConstGauge::new(*pods).encode(family.encode_family(labels)?)?;
        }
        let help = "Time since the API server last sent an object of this kind";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("view_age", help, unit, MetricType::Gauge)?;
        for (kind, age) in self.view.ages(Instant::now()) {
            let age = ConstGauge::new(age.as_secs_f64());
            age.encode(family.encode_family(&KindLabels { kind })?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauges").field("view", &self.view).finish_non_exhaustive()
    }
}

/// All samples of free capacity on fabrics.
fn room(expected: &Expected) -> Vec<(RoomLabels, i64)> {
    let mut samples = Vec::new();
    for (fabric, room) in expected.fabrics() {
        for (demand, pods) in &room.pods {
            let levels: Vec<String> = match demand.nodes {
                1 => learn::levels().collect(),
                _ => vec!["fabric".to_owned()],
            };
            for (level, pods) in levels.into_iter().zip(pods) {
                samples.push((
                    RoomLabels { fabric: fabric.clone(), shape: demand.to_string(), level },
                    i64::from(*pods),
                ));
            }
        }
    }
    samples
}
