//! Laws of the answer over arbitrary states of a cluster of GB300 nodes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use cluster_model::predict::{Prediction, pod_claims, predict};
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::DeviceId;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use proptest::prelude::*;
use scheduler_ext::prioritize::{Answer, Ranker};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;
use topology_graph::{NodeTopology, PathKind};

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
const NICS: [&str; 4] =
    ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];

/// A device of a node: its node, and 0 to 3 for GPUs, 4 to 7 for NICs.
type Busy = (usize, usize);

/// Every object of the cluster, nothing in use.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let of_node = |node: &&str| {
        let file = folder.path().join(format!("{node}.yaml"));
        fs::write(&file, text.replace(NODE, node)).unwrap();
        snapshot::objects(Path::new(&file)).unwrap()
    };
    let mut objects: Vec<Value> = NODES.iter().flat_map(of_node).collect();
    objects.push(json!({
        "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "team", "name": "soft"},
        "spec": {"spec": {"devices": {
            "requests": [
                {"name": "nic", "firstAvailable": [
                    {"name": "near", "deviceClassName": "dranet.net"},
                    {"name": "any", "deviceClassName": "dranet.net"},
                ]},
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            ],
            "constraints": [
                {"requests": ["gpu", "nic/near"], "matchAttribute": "gpu.nvidia.com/uuid"},
            ],
        }}},
    }));
    objects
});

fn claim((node, device): Busy) -> ResourceClaim {
    let (driver, name) = match device {
        0..4 => ("gpu.nvidia.com", format!("gpu-{device}")),
        _ => ("dra.net", NICS[device - 4].to_owned()),
    };
    from(&json!({
        "metadata": {"namespace": "other", "name": format!("{node}-{device}")}, "spec": {},
        "status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": driver, "pool": NODES[node], "device": name},
        ]}}},
    }))
}

fn key((node, device): Busy) -> ObjectKey {
    ObjectKey { namespace: "other".to_owned(), name: format!("{node}-{device}") }
}

fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn apply(view: &mut ClusterView, object: &Value) {
    match object["kind"].as_str().unwrap() {
        "Node" => view.apply(from::<Node>(object)),
        "DeviceClass" => view.apply(from::<DeviceClass>(object)),
        "ResourceSlice" => view.apply(from::<ResourceSlice>(object)),
        "NodeTopology" => view.apply(from::<NodeTopology>(object)),
        "ResourceClaimTemplate" => view.apply(from::<ResourceClaimTemplate>(object)),
        "ResourceClaim" => view.apply(from::<ResourceClaim>(object)),
        other => panic!("no `{other}` is expected"),
    }
    .unwrap();
}

fn cluster<'o>(objects: impl IntoIterator<Item = &'o Value>) -> ClusterView {
    let mut view = ClusterView::default();
    objects.into_iter().for_each(|object| apply(&mut view, object));
    view
}

fn pod() -> Pod {
    from(&json!({
        "metadata": {"namespace": "team", "name": "p"},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "dranet", "resourceClaimTemplateName": "soft"},
        ]},
    }))
}

fn ask(ranker: &Ranker, view: &ClusterView) -> Answer {
    ranker.prioritize(&pod(), &NODES.map(str::to_owned), view, Instant::now(), &|| false)
}

fn points(answer: &Answer) -> Vec<i64> {
    answer.nodes.iter().map(|scored| scored.score).collect()
}

/// The place of the chosen alternative and the path of the pair, by the allocator and
/// the graph alone.
fn gets(view: &ClusterView, node: &str) -> Option<(usize, PathKind)> {
    let claims = pod_claims(&pod(), view).unwrap();
    let claims = [claims.open[0].parse().unwrap()];
    let Prediction::Fits { allocations, .. } = predict(view, node, &claims) else { return None };
    let results = &allocations[0].results;
    let alternative = usize::from(results.iter().any(|result| &*result.request == "nic/any"));
    let address = |id: &DeviceId| -> topology_graph::PciAddress {
        let bus = match &*id.driver {
            "dra.net" => id.device.replace("pci-", ""),
            _ => return gpu_address(view, node, id),
        };
        let parts: Vec<_> = bus.split('-').collect();
        format!("{}:{}:{}.{}", parts[0], parts[1], parts[2], parts[3]).parse().unwrap()
    };
    let [a, b] = [0, 1].map(|index: usize| address(&results[index].device));
    Some((alternative, view.topology(node)?.path(a, b)))
}

fn gpu_address(view: &ClusterView, node: &str, id: &DeviceId) -> topology_graph::PciAddress {
    let devices = view.inventory().devices_on(node, view.settings()).unwrap();
    let gpu = devices.into_iter().find(|device| device.id() == id).unwrap();
    let address = gpu.attribute("resource.kubernetes.io/pciBusID").unwrap().to_string();
    address.trim_matches('"').parse().unwrap()
}

fn busy() -> impl Strategy<Value = Vec<Busy>> {
    prop::collection::vec((0..NODES.len(), 0..8_usize), 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A node with a strictly better alternative or path scores strictly higher.
    #[test]
    fn better_devices_score_higher_in_any_state(busy in busy()) {
        let mut view = cluster(&*OBJECTS);
        for device in busy {
            view.apply(claim(device)).unwrap();
        }
        let answer = ask(&Ranker::default(), &view);
        let gets = NODES.map(|node| gets(&view, node));
        for (a, of_a) in gets.iter().zip(&answer.nodes) {
            for (b, of_b) in gets.iter().zip(&answer.nodes) {
                let (Some(a), Some(b)) = (a, b) else { continue };
                prop_assert!(a >= b || of_a.score > of_b.score, "{a:?} {of_a:?}\n{b:?} {of_b:?}");
            }
        }
    }

    /// Whatever changes between two requests, the answer is that of one who remembers nothing.
    #[test]
    fn memory_changes_no_answer(changes in prop::collection::vec((0..NODES.len(), 0..8_usize, any::<bool>()), 1..12)) {
        let mut view = cluster(&*OBJECTS);
        let ranker = Ranker::default();
        for (node, device, comes) in changes {
            if comes {
                view.apply(claim((node, device))).unwrap();
            } else {
                Index::<ResourceClaim>::delete(&mut view, &key((node, device)));
            }
            prop_assert_eq!(points(&ask(&ranker, &view)), points(&ask(&Ranker::default(), &view)));
        }
    }

    /// In which order watches tell of the cluster does not matter.
    #[test]
    fn any_order_of_events_gives_the_same_answer(
        (busy, order) in (busy(), Just((0..OBJECTS.len() + 25).collect::<Vec<_>>()).prop_shuffle())
    ) {
        let claims = busy.into_iter().map(|busy| {
            let mut object = serde_json::to_value(claim(busy)).unwrap();
            object["kind"] = "ResourceClaim".into();
            object
        });
        let objects: Vec<Value> = OBJECTS.iter().cloned().chain(claims).collect();
        let shuffled = order.into_iter().filter_map(|index| objects.get(index));
        let listed = cluster(&objects);
        let watched = cluster(shuffled);
        prop_assert_eq!(points(&ask(&Ranker::default(), &watched)), points(&ask(&Ranker::default(), &listed)));
    }
}
