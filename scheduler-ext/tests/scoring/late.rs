//! Nodes that bind NICs late: the extender knows which NICs and GPUs pods have from the status of their
//! claims, and prefers nodes on which the pod finds near NICs whatever GPUs the kubelet chooses.

use super::cluster::{answer, apply, ask, classes, cluster, from, pod_of, points, template};
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::answer::Answer;
use scheduler_ext::prioritize::Ranker;
use scheduler_ext::score::AtStart;
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Instant;
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, NicRole, NodeTopology, Topology, read};

/// Two NUMA nodes with four GPUs and four compute NICs each; a GPU and a NIC are below one root port.
pub(super) static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    let root = tempfile::tempdir().unwrap();
    plant(machine("dgx-h100").unwrap(), root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
});

/// The addresses of the GPUs and of the compute NICs.
pub(super) fn addresses() -> [Vec<String>; 2] {
    let gpus = TOPOLOGY.gpus().iter().map(|gpu| gpu.address.to_string()).collect();
    let nics = TOPOLOGY.nics().iter().filter(|nic| nic.role == NicRole::Compute);
    [gpus, nics.map(|nic| nic.address.to_string()).collect()]
}

/// A node with eight GPUs of a device plugin and as many places.
fn late_node(node: &str, policy: Option<&str>) -> Vec<Value> {
    let mut spec = TOPOLOGY.to_spec();
    spec.topology_manager_policy = policy.map(str::to_owned);
    let mut graph = serde_json::to_value(NodeTopology::new(node, spec)).unwrap();
    graph["kind"] = "NodeTopology".into();
    let places = (0..8).map(|number| {
        json!({ "name": format!("late-{number}"), "attributes": {
            "dranet.io/lateBinding": { "bool": true },
            "dranet.io/role": { "string": "compute" },
            "dra.net/rdma": { "bool": true },
        } })
    });
    let amounts = json!({ "nvidia.com/gpu": "8" });
    vec![
        json!({
            "kind": "Node", "metadata": { "name": node },
            "status": { "capacity": amounts, "allocatable": amounts },
        }),
        json!({
            "kind": "ResourceSlice", "metadata": { "name": format!("{node}-dra.net") },
            "spec": {
                "driver": "dra.net", "nodeName": node, "devices": places.collect::<Vec<_>>(),
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            },
        }),
        graph,
    ]
}

/// A claim for places, as admission writes it.
pub(super) fn late_spec(gpus: u32, nics: u32, within: Option<&str>) -> Value {
    json!({ "devices": {
        "requests": [{ "name": "nics", "exactly": {
            "deviceClassName": "dranet.net", "count": nics,
        } }],
        "config": [{ "requests": ["nics"], "opaque": {
            "driver": "dra.net",
            "parameters": { "lateBinding": { "gpus": gpus, "within": within } },
        } }],
    } })
}

/// A pod that has these GPUs and NICs of a node, by number. Without GPUs it has not started, and has as
/// many places as `nics`.
pub(super) fn held(
    node: &str,
    first_place: usize,
    gpus: &[usize],
    nics: &[usize],
) -> ResourceClaim {
    let [all_gpus, all_nics] = addresses();
    let place = |index: usize| format!("late-{}", first_place + index);
    let own: Vec<&String> = gpus.iter().map(|gpu| &all_gpus[*gpu]).collect();
    let results = (0..nics.len()).map(|index| {
        json!({ "request": "nics", "driver": "dra.net", "pool": node, "device": place(index) })
    });
    let devices = nics.iter().enumerate().filter(|_| !gpus.is_empty()).map(|(index, nic)| {
        json!({
            "driver": "dra.net", "pool": node, "device": place(index),
            "data": { "nic": "pci", "pciBusID": all_nics[*nic], "gpus": own },
        })
    });
    let count = u32::try_from(nics.len()).unwrap();
    from(&json!({
        "metadata": { "namespace": "team", "name": format!("{node}-{first_place}") },
        "spec": late_spec(count, count, Some("numa")),
        "status": {
            "allocation": { "devices": { "results": results.collect::<Vec<_>>() } },
            "devices": devices.collect::<Vec<_>>(),
        },
    }))
}

pub(super) fn view(
    nodes: &[(&str, Option<&str>)],
    claims: &[ResourceClaim],
    asked: &Value,
) -> ClusterView {
    let mut objects = classes();
    objects.extend(nodes.iter().flat_map(|(node, policy)| late_node(node, *policy)));
    objects.push(template("late", asked));
    let mut view = cluster(&objects);
    for claim in claims {
        view.apply_claim(claim);
    }
    view
}

trait ApplyClaim {
    fn apply_claim(&mut self, claim: &ResourceClaim);
}

impl ApplyClaim for ClusterView {
    fn apply_claim(&mut self, claim: &ResourceClaim) {
        let mut object = serde_json::to_value(claim).unwrap();
        object["kind"] = "ResourceClaim".into();
        apply(self, &object);
    }
}

/// What the pod can expect on each node.
fn expected(answer: &Answer) -> Vec<(&str, Option<AtStart>)> {
    let nodes = answer.nodes.iter();
    nodes
        .map(|node| {
            let outcome = node.reason.outcome();
            (node.node.as_str(), outcome.and_then(|outcome| outcome.gets.at_start))
        })
        .collect()
}

pub(super) fn missed(answer: &Answer) -> Vec<Option<u32>> {
    expected(answer).into_iter().map(|(_, at_start)| at_start.map(|it| it.missed)).collect()
}

/// On `near` the two pods took the GPUs and NICs of one NUMA node. On `far`, which has as many free
/// devices, the free GPUs and NICs are on different ones.
#[test]
fn a_node_with_near_nics_is_preferred_to_a_fuller_one() {
    let claims = [
        held("near", 0, &[0, 1, 2, 3], &[0, 1, 2, 3]),
        held("far", 0, &[0, 1, 2, 3], &[4, 5, 6, 7]),
        // The fuller node came first by the number of free places.
        held("fuller", 0, &[0, 1], &[4, 5]),
        held("fuller", 2, &[2, 3], &[6, 7]),
        held("fuller", 4, &[4], &[3]),
    ];
    let asked = late_spec(1, 1, Some("numa"));
    let view = view(&[("near", None), ("far", None), ("fuller", None)], &claims, &asked);
    let answer = answer(&pod_of("late"), &["near", "far", "fuller"], &view);
    assert_eq!(missed(&answer), [Some(0), Some(8), Some(8)]);
    let scores = points(&answer);
    assert!(scores[0].1 > scores[1].1 && scores[0].1 > scores[2].1, "{scores:?}");
    assert_eq!(scores[0], ("near", 10));
}

/// Without a policy any GPUs are likely; the topology manager keeps them on one NUMA node.
#[test]
fn the_policy_of_the_kubelets_topology_manager_counts() {
    // Three NICs of each NUMA node are free, and all GPUs.
    let claims = |node: &str| [held(node, 0, &[0], &[0]), held(node, 1, &[4], &[4])];
    let names = ["any", "aligned", "strict"];
    let policies = [None, Some("best-effort"), Some("single-numa-node")];
    let nodes: Vec<(&str, Option<&str>)> = names.into_iter().zip(policies).collect();
    let claims: Vec<ResourceClaim> = names.iter().flat_map(|node| claims(node)).collect();
    let of = |gpus: u32, nics: u32| {
        let asked = late_spec(gpus, nics, Some("numa"));
        let view = view(&nodes, &claims, &asked);
        missed(&answer(&pod_of("late"), &names, &view))
    };
    // Three GPUs and three NICs are free on each NUMA node.
    assert_eq!(of(3, 3), [Some(0), Some(0), Some(0)]);
    assert_eq!(of(2, 4), [Some(4), Some(8), Some(8)], "two GPUs of one NUMA node have three NICs");
    assert_eq!(of(4, 4), [Some(0), Some(0), Some(8)], "the kubelet refuses it");
}

/// The driver writes the NICs into the status when the pod starts; until then the pod takes the first
/// devices that serve it.
#[test]
fn a_claim_counts_before_and_after_its_pod_starts() {
    let asked = late_spec(4, 4, Some("numa"));
    let nodes = [("a", Some("best-effort")), ("b", Some("best-effort"))];
    let mut view = view(&nodes, &[held("a", 0, &[], &[0, 1, 2, 3])], &asked);
    let ranker = Ranker::default();
    let ask = |view: &ClusterView| ask(&ranker, &pod_of("late"), &["a", "b"], view, Instant::now());
    assert_eq!(missed(&ask(&view)), [Some(0), Some(0)], "the other NUMA node is free");
    view.apply_claim(&held("a", 0, &[0, 1, 2, 3], &[0, 1, 2, 3]));
    assert_eq!(missed(&ask(&view)), [Some(0), Some(0)]);
    // With preferred nearness the driver has given it far NICs.
    view.apply_claim(&held("a", 0, &[0, 1, 2, 3], &[4, 5, 6, 7]));
    assert_eq!(missed(&ask(&view)), [Some(8), Some(0)], "an answer in memory is not used again");
}

/// The driver gives the nearest NICs, so nearer levels decide among nodes that serve the pod.
#[test]
fn nearer_nics_are_better() {
    let claims = [held("a", 0, &[0], &[0]), held("b", 0, &[0], &[1])];
    let view = view(&[("a", None), ("b", None)], &claims, &late_spec(1, 1, Some("numa")));
    let answer = answer(&pod_of("late"), &["a", "b"], &view);
    let [a, b] = [0, 1].map(|index| expected(&answer)[index].1.unwrap());
    assert_eq!((a.missed, b.missed), (0, 0));
    assert!(a.nearer < b.nearer, "GPU 1 has lost the NIC next to it: {a:?} {b:?}");
    assert_eq!(points(&answer)[0], ("a", 10));
}

/// Ports that are down, and nodes about which nothing is known.
#[test]
fn unusable_nics_and_unknown_nodes() {
    let asked = late_spec(4, 4, Some("numa"));
    let mut objects = classes();
    objects.push(template("late", &asked));
    for node in ["whole", "down", "shared", "no-graph"] {
        let mut node_objects = late_node(node, Some("best-effort"));
        match node {
            "down" => {
                let at = addresses()[1][0].clone();
                let nics = node_objects[2]["spec"]["nics"].as_array_mut().unwrap();
                nics.retain(|nic| nic["at"] != at.as_str());
                nics.push(json!({ "at": at, "role": "compute", "state": "Down" }));
            }
            // Time slicing: a unit is no GPU.
            "shared" => node_objects[0]["status"]["capacity"]["nvidia.com/gpu"] = "32".into(),
            "no-graph" => _ = node_objects.pop(),
            _ => {}
        }
        objects.extend(node_objects);
    }
    let view = cluster(&objects);
    let answer = answer(&pod_of("late"), &["whole", "down", "shared", "no-graph"], &view);
    assert_eq!(missed(&answer), [Some(0), Some(8), Some(8), Some(8)]);
    // A claim that does not say how many GPUs its pod has.
    let mut unknown = late_spec(4, 4, None);
    unknown["devices"].as_object_mut().unwrap().remove("config");
    let view = self::view(&[("a", None)], &[], &unknown);
    let answer = super::cluster::answer(&pod_of("late"), &["a"], &view);
    assert_eq!(expected(&answer), [("a", Some(AtStart::UNKNOWN))]);
}
