//! Labels on nodes that describe their machines, for node selectors and autoscalers. They
//! come from the NodeTopology and the published devices, so that no driver needs
//! permission to write nodes.
//!
//! A label is written if it differs and is never removed: a machine whose driver is down
//! is still the same machine.

use crate::node_label::label_value;
use cluster_model::names::attribute;
use cluster_model::names::label::{GPU_COUNT, INSTANCE_TYPE, MACHINE_TYPE, NIC_COUNT, RAIL_COUNT};
use cluster_model::node_devices::{int, published, text};
use cluster_model::view::ClusterView;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use topology_graph::NicRole;

/// The nodes whose machine labels are missing or differ, and the labels to merge into
/// each.
pub fn due(view: &ClusterView) -> Vec<(String, Value)> {
    let due = view.present_nodes().filter_map(|name| {
        let labels = &view.inventory().node(name)?.labels;
        let due: Map<String, Value> = wanted(view, name)?
            .into_iter()
            .filter(|(key, value)| labels.get(*key).is_none_or(|there| **there != **value))
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        (!due.is_empty()).then(|| (name.to_owned(), due.into()))
    });
    due.collect()
}

/// The machine labels of a node; `None` if it has no topology.
fn wanted(view: &ClusterView, node: &str) -> Option<Vec<(&'static str, String)>> {
    let graph = view.topology(node)?;
    let (mut machine, mut rails) = (None, BTreeSet::new());
    for (_, nic) in published(view, node).filter(|(role, _)| role.is_nic()) {
        machine =
            machine.or_else(|| attribute::MACHINE_TYPES.iter().find_map(|name| text(nic, name)));
        rails.extend(int(nic, attribute::RAIL));
    }
    let instance = view.node_label(node, INSTANCE_TYPE);
    let machine = machine.or(instance).map(label_value);
    let mut wanted = vec![
        (GPU_COUNT, graph.gpus().len().to_string()),
        (
            NIC_COUNT,
            graph.nics().iter().filter(|nic| nic.role == NicRole::Compute).count().to_string(),
        ),
        (MACHINE_TYPE, machine.unwrap_or_else(|| graph.shape().to_string())),
    ];
    if !rails.is_empty() {
        wanted.push((RAIL_COUNT, rails.len().to_string()));
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::snapshot;
    use cluster_model::view::Index as _;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn a_node_is_labelled_with_its_machine_once() {
        let mut view = snapshot::load(Path::new("../deploy/examples/aks-gb300")).unwrap().0;
        let all = due(&view);
        let (node, labels) = all.first().unwrap().clone();
        insta::assert_json_snapshot!(labels);
        assert_eq!(all.iter().filter(|(_, it)| *it == labels).count(), all.len(), "{all:?}");

        let mut own = labels.clone();
        own[GPU_COUNT] = "7".into();
        let object = |labels: &Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": node, "labels": labels}})).unwrap()
        };
        view.apply(object(&own)).unwrap();
        let again = due(&view).into_iter().find(|(name, _)| *name == node).unwrap();
        assert_eq!(again.1, json!({GPU_COUNT: labels[GPU_COUNT]}));
        view.apply(object(&labels)).unwrap();
        assert!(due(&view).iter().all(|(name, _)| *name != node));
    }
}
