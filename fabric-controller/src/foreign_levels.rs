//! Domains of nodes from objects in which other schedulers describe the network.
//!
//! They say which nodes are near each other, but not which of their levels is a leaf switch. So the
//! nearest level that they have is taken for the block:
//! - Volcano's `HyperNode`: the one of the lowest tier that has the node as a member.
//! - Kueue's `Topology`: the nearest label besides the host name. Kueue tells domains apart by the
//!   values of all levels (`LevelValues` in `pkg/util/tas/tas.go` of v0.19.2), and so does this.
//!
//! What is made from a label that is a source itself says nothing new, and is left out.

use crate::level_sources::{BLOCK, NVLINK};
use cluster_model::view::ClusterView;
use dra_allocator::Node;

/// The label of a node with its own name.
const HOST: &str = "kubernetes.io/hostname";

/// What Kueue's `Topology` objects say of the domain of a node.
pub(crate) fn of_topologies(view: &ClusterView, node: &Node) -> Option<String> {
    let all = view.foreign_topologies().topologies();
    let own = all.filter(|(_, labels)| !labels.iter().any(|label| is_source(label)));
    own.into_iter().find_map(|(_, labels)| {
        let labels = labels.iter().filter(|label| *label != HOST);
        let values = labels.map(|label| node.label(label));
        let values = values.collect::<Option<Vec<_>>>().filter(|values| !values.is_empty());
        values.map(|values| values.join("."))
    })
}

/// What Volcano's `HyperNode` objects say of the domain of a node.
pub(crate) fn of_hyper_nodes(view: &ClusterView, node: &Node) -> Option<String> {
    let home = view.foreign_topologies().hyper_node_of(node)?;
    let is_known = home.labels.iter().any(|label| is_source(label));
    (!is_known).then(|| home.name.to_owned())
}

/// Whether a label is a source of its own.
fn is_source(label: &str) -> bool {
    NVLINK.contains(&label) || BLOCK.contains(&label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::hyper_node::HyperNode;
    use cluster_model::kueue_topology::Topology;
    use cluster_model::view::Index as _;
    use serde_json::json;

    fn topology(name: &str, labels: &[&str]) -> Topology {
        let levels: Vec<_> = labels.iter().map(|label| json!({"nodeLabel": label})).collect();
        let object = json!({"metadata": {"name": name}, "spec": {"levels": levels}});
        serde_json::from_value(object).unwrap()
    }

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        Node { labels: labels.collect(), ..Node::named("n") }
    }

    #[test]
    fn the_nearest_level_of_a_topology_is_the_block() {
        let mut view = ClusterView::default();
        let subblock = "cloud.google.com/gce-topology-subblock";
        for object in [
            topology("a", &[subblock, "host", HOST]),
            topology("b", &["row", "rack", HOST]),
            topology("c", &["room"]),
            topology("d", &[HOST]),
        ] {
            view.apply(object).unwrap();
        }
        for (labels, expected) in [
            (&[("row", "1"), ("rack", "7")][..], Some("1.7")),
            (&[("row", "1"), ("rack", "7"), ("room", "x")], Some("1.7")),
            // Kueue leaves out nodes without one of the labels.
            (&[("rack", "7"), ("room", "x")], Some("x")),
            (&[("rack", "7")], None),
            (&[(subblock, "s"), ("host", "h")], None),
        ] {
            let found = of_topologies(&view, &node(labels));
            assert_eq!(found.as_deref(), expected, "{labels:?}");
        }
    }

    #[test]
    fn hyper_nodes_of_a_label_that_is_a_source_say_nothing() {
        for (label, expected) in [("rack", Some("s")), (NVLINK[0], None)] {
            let mut view = ClusterView::default();
            let object = json!({"metadata": {"name": "s"}, "spec": {"tier": 1, "members": [
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {label: "x"}}}},
            ]}});
            view.apply(serde_json::from_value::<HyperNode>(object).unwrap()).unwrap();
            let found = of_hyper_nodes(&view, &node(&[(label, "x")]));
            assert_eq!(found.as_deref(), expected, "{label}");
        }
    }
}
