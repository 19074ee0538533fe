//! A month of requests about a cluster whose nodes are replaced, each by one with a new name.

use super::*;
use cluster_model::snapshot;
use cluster_model::view::Index;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use topology_graph::NodeTopology;

/// A machine with four GPUs and four NICs.
const MACHINE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/aks-gb300/cluster.yaml");

const HOURS: usize = 30 * 24;
/// The nodes of the cluster, and how many are replaced in an hour.
const NODES: usize = 24;
const REPLACED: usize = 2;

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The objects of a kind that the machine's file has.
fn published<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let objects = snapshot::objects(Path::new(MACHINE)).unwrap().into_iter();
    objects.filter(|object| object["kind"] == kind).map(object).collect()
}

/// The cluster that requests are about.
struct Cluster {
    view: ClusterView,
    node: Node,
    slices: Vec<ResourceSlice>,
    topology: NodeTopology,
    names: VecDeque<String>,
    made: usize,
}

impl Cluster {
    fn new() -> Self {
        let mut view = ClusterView::default();
        for class in published::<DeviceClass>("DeviceClass") {
            view.apply(class).unwrap();
        }
        let (names, made) = (VecDeque::new(), 0);
        let (node, topology) = (published("Node").remove(0), published("NodeTopology").remove(0));
        Self { view, node, slices: published("ResourceSlice"), topology, names, made }
    }

    fn add_node(&mut self) {
        self.made += 1;
        let name = format!("gpu-pool-{}", self.made);
        let (mut node, mut topology) = (self.node.clone(), self.topology.clone());
        (node.metadata.name, topology.metadata.name) = (Some(name.clone()), Some(name.clone()));
        self.view.apply(node).unwrap();
        self.view.apply(topology).unwrap();
        for (index, mut slice) in self.slices.iter().cloned().enumerate() {
            slice.metadata.name = Some(format!("{name}-{index}"));
            slice.spec.node_name = Some(name.clone());
            slice.spec.pool.name.clone_from(&name);
            self.view.apply(slice).unwrap();
        }
        self.names.push_back(name);
    }

    fn remove_node(&mut self) {
        let Some(name) = self.names.pop_front() else { return };
        let key = ObjectKey::cluster_wide(&name);
        Index::<Node>::delete(&mut self.view, &key);
        Index::<NodeTopology>::delete(&mut self.view, &key);
        for index in 0..self.slices.len() {
            let slice = ObjectKey::cluster_wide(&format!("{name}-{index}"));
            Index::<ResourceSlice>::delete(&mut self.view, &slice);
        }
    }

    /// A claim without devices, and the pod that it was made for.
    fn add_pod(&mut self, number: usize) -> Pod {
        let name = format!("train-{number}");
        let metadata = json!({"name": name, "namespace": "team", "uid": format!("{number:032}")});
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
        self.view
            .apply(object::<ResourceClaim>(json!({"metadata": metadata,
                "spec": {"devices": {"requests": [request]}}})))
            .unwrap();
        object(json!({"metadata": metadata,
            "spec": {"containers": [],
                "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "nics"}]},
            "status": {"resourceClaimStatuses": [{"name": "nics", "resourceClaimName": name}]}}))
    }

    fn remove_pod(&mut self, number: usize) {
        let claim = ObjectKey { namespace: "team".to_owned(), name: format!("train-{number}") };
        Index::<ResourceClaim>::delete(&mut self.view, &claim);
    }
}

impl Ranker {
    /// How much is held of nodes and pods.
    fn held(&self) -> usize {
        let in_flight = lock(&self.in_flight);
        let expected = self.expected();
        self.answers.held() + in_flight.held() + expected.rooms.len() + lock(&self.recent).len()
    }
}

#[test]
fn a_month_of_new_nodes_leaves_nothing_behind() {
    let (ranker, begin, mut cluster) = (Ranker::default(), Instant::now(), Cluster::new());
    (0..NODES).for_each(|_| cluster.add_node());
    let (mut first, mut last, mut neutral) = (0, 0, 0);
    for hour in 0..HOURS {
        for _ in 0..REPLACED {
            cluster.remove_node();
            cluster.add_node();
        }
        let now = begin + Duration::from_hours(hour as u64);
        let pod = cluster.add_pod(hour);
        let names: Vec<String> = cluster.names.iter().cloned().collect();
        let answer = ranker.prioritize(&pod, &names, &cluster.view, now, &|| false);
        neutral += answer.nodes.iter().filter(|scored| scored.forecast().is_none()).count();
        ranker.keep(ObjectKey::new(&pod.metadata), answer);
        ranker.settle(&cluster.view, now + Duration::from_mins(1));
        cluster.remove_pod(hour);
        ranker.settle(&cluster.view, now + Duration::from_mins(2));
        ranker.learn(&cluster.view);
        let most = if hour < 4 * 24 { &mut first } else { &mut last };
        *most = ranker.held().max(*most);
    }
    println!("{} nodes, {HOURS} pods; {first} entries at first, {last} later", cluster.made);
    assert_eq!(neutral, 0, "each node has a forecast");
    // Answers for debug pages come from the last hundred pods.
    assert!(last <= first + RECENT_MAX, "{first} entries in the first days, later {last}");
}
