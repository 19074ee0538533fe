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
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use topology_graph::PathKind;

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
struct FabricLabels {
    fabric: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct RunningLabels {
    namespace: String,
    path: String,
}

/// The most namespaces that are shown by name; the pods of all others are counted together, under the
/// empty name.
const NAMESPACES_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let expected = (self.expected)();
        let help = "How many more pods of a common shape, or gangs of them, find each GPU with \
                    its NICs in one cell of this level, over the nodes of the fabric";
        let mut family = encoder.encode_descriptor("room_pods", help, None, MetricType::Gauge)?;
        for (labels, pods) in &room(&expected) {
            ConstGauge::new(*pods).encode(family.encode_family(labels)?)?;
        }
        let help = "Share of all pods that have a shape, as configured and as learned";
        let mut family =
            encoder.encode_descriptor("expected_share", help, None, MetricType::Gauge)?;
        for (labels, share) in &learned::shares(&expected) {
            ConstGauge::new(*share).encode(family.encode_family(labels)?)?;
        }
        let help = "Pods with a shape among the last that got devices";
        let mut family = encoder.encode_descriptor("recent_pods", help, None, MetricType::Gauge)?;
        for (labels, pods) in &learned::recent(&expected) {
            ConstGauge::new(*pods).encode(family.encode_family(labels)?)?;
        }
        let help = "Pods with GPUs and NICs that run, by the farthest path of their pairs";
        let mut family =
            encoder.encode_descriptor("running_pods", help, None, MetricType::Gauge)?;
        for (labels, pods) in &running(&expected) {
            ConstGauge::new(*pods).encode(family.encode_family(labels)?)?;
        }
        let help = "Free GPUs of the fabric near which no NIC is left";
        let mut family =
            encoder.encode_descriptor("stranded_gpus", help, None, MetricType::Gauge)?;
        for (fabric, room) in expected.fabrics() {
            let labels = FabricLabels { fabric: fabric.clone() };
            let stranded = ConstGauge::new(i64::from(room.stranded));
            stranded.encode(family.encode_family(&labels)?)?;
        }
        let help = "Nodes of the fabric on which nothing is in use: the largest group of whole nodes \
                    that finds room there";
        let mut family = encoder.encode_descriptor("whole_nodes", help, None, MetricType::Gauge)?;
        for (fabric, room) in expected.fabrics() {
            let labels = FabricLabels { fabric: fabric.clone() };
            let nodes = ConstGauge::new(i64::from(room.whole_nodes));
            nodes.encode(family.encode_family(&labels)?)?;
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

/// All samples of running pods: the namespaces with the most pods, and all others together.
fn running(expected: &Expected) -> BTreeMap<RunningLabels, i64> {
    let rooms = expected.rooms.values();
    let pods = rooms.flat_map(|(_, node)| node.pods.iter());
    let paired = pods.filter_map(|(pod, path)| Some((pod.key.namespace.as_str(), (*path)?)));
    let paired: Vec<(&str, PathKind)> = paired.collect();
    let mut totals: BTreeMap<&str, u32> = BTreeMap::new();
    for (namespace, _) in &paired {
        *totals.entry(namespace).or_default() += 1;
    }
    let mut named: Vec<(&str, u32)> = totals.into_iter().collect();
    // The first by name wins ties.
    named.sort_by_key(|(namespace, pods)| (Reverse(*pods), *namespace));
    named.truncate(NAMESPACES_MAX);
    let named: BTreeSet<&str> = named.into_iter().map(|(namespace, _)| namespace).collect();
    let mut samples = BTreeMap::new();
    for (namespace, path) in paired {
        let namespace = if named.contains(namespace) { namespace } else { "" }.to_owned();
        let labels = RunningLabels { namespace, path: path.to_string() };
        *samples.entry(labels).or_default() += 1;
    }
    samples
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::{NodeRoom, PodName};
    use crate::score::FreeCells;
    use cluster_model::view::{NodeVersion, ObjectKey};

    /// Pods of 102 namespaces, of which the last two have the fewest.
    #[test]
    fn namespaces_beyond_the_largest_are_counted_together() {
        let mut pods = BTreeMap::new();
        for namespace in 0..102 {
            for number in 0..if namespace < 100 { 2 } else { 1 } {
                let (namespace, name) = (format!("team-{namespace:03}"), format!("pod-{number}"));
                let pod = PodName { key: ObjectKey { namespace, name }, uid: String::new() };
                pods.insert(pod, Some(if number == 0 { PathKind::Pix } else { PathKind::Sys }));
            }
        }
        let without = ObjectKey { namespace: "team-000".to_owned(), name: "no-pair".to_owned() };
        pods.insert(PodName { key: without, uid: String::new() }, None);
        let room = NodeRoom {
            room: FreeCells::default(),
            pods: Arc::new(pods),
            stranded: 0,
            is_open: true,
            is_whole: false,
        };
        let mut expected = Expected::default();
        expected.rooms.insert("a".to_owned(), (NodeVersion::default(), room));
        let samples = running(&expected);
        let of = |namespace: &str, path: &str| {
            let (namespace, path) = (namespace.to_owned(), path.to_owned());
            samples.get(&RunningLabels { namespace, path }).copied()
        };
        assert_eq!(samples.len(), 2 * NAMESPACES_MAX + 1);
        assert_eq!([of("team-000", "PIX"), of("team-099", "SYS")], [Some(1), Some(1)]);
        assert_eq!([of("", "PIX"), of("", "SYS"), of("team-100", "PIX")], [Some(2), None, None]);
    }
}
