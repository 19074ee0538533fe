//! Clusters of simulated nodes: the objects that their drivers publish, claims that hold
//! devices, and requesting pods.

use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use scheduler_ext::answer::Answer;
use scheduler_ext::prioritize::Ranker;
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use topology_graph::{NodeTopology, Overlay, PciAddress, Topology};

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const EXAMPLE_NODE: &str = "aks-gpu-45139532-vmss000081";

/// NICs of a GB300 node. The GPU and NIC with the same index are partners; 0 and 1 are on
/// one NUMA node.
pub(crate) const NICS: [&str; 4] =
    ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];

/// A machine of a cloud, with topology-graph's topology for its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The cloud's name for the size.
    pub(crate) name: &'static str,
    /// Driver of its GPUs.
    pub(crate) gpus: &'static str,
    /// The attribute with which the GPU driver publishes the NUMA node.
    pub(crate) numa: &'static str,
}

/// Two NUMA nodes with four GPUs and four NICs each.
pub(crate) const H100: Size = Size {
    name: "Standard_ND96isr_H100_v5",
    gpus: "gpu.nvidia.com",
    numa: "resource.kubernetes.io/numaNode",
};

/// Four NUMA nodes with two GPUs and two NICs each.
pub(crate) const A100: Size = Size {
    name: "Standard_ND96asr_v4",
    gpus: "gpu.nvidia.com",
    numa: "resource.kubernetes.io/numaNode",
};

/// As [`H100`], with a GPU driver that publishes no standard NUMA node.
pub(crate) const AMD: Size =
    Size { name: "Standard_ND96isr_H100_v5", gpus: "gpu.amd.com", numa: "gpu.amd.com/numaNode" };

/// The classes of all drivers and one of every GPU.
pub(crate) fn classes() -> Vec<Value> {
    let class = |name: &str, expression: &str| {
        json!({
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        })
    };
    vec![
        class("gpu", "device.driver in [\"gpu.nvidia.com\", \"gpu.amd.com\"]"),
        class("gpu.nvidia.com", "device.driver == \"gpu.nvidia.com\""),
        class("dranet.net", "device.driver == \"dra.net\""),
    ]
}

/// A GB300 node as published live.
pub(crate) fn gb300(node: &str) -> Vec<Value> {
    static OBJECTS: LazyLock<String> = LazyLock::new(|| fs::read_to_string(EXAMPLE).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.yaml");
    fs::write(&file, OBJECTS.replace(EXAMPLE_NODE, node)).unwrap();
    snapshot::objects(&file).unwrap()
}

/// A node of a cloud's size; its GPUs are `gpu-0` and so on, its NICs `nic-0` and so on.
pub(crate) fn node_of(size: Size, node: &str) -> Vec<Value> {
    let (topology, _) = Topology::from_overlay(&Overlay::built_in(size.name).unwrap());
    let device = |name: &str, index: usize, address: PciAddress, numa: Option<u32>| {
        let mut attributes =
            json!({"resource.kubernetes.io/pciBusID": {"string": address.to_string()}});
        let (attribute, more) = if name == "nic" {
            (
                H100.numa,
                json!({
                    "azure.dra.net/vmSize": {"string": size.name}, "dra.net/rdma": {"bool": true},
                }),
            )
        } else {
            let kind = if size.gpus == "gpu.amd.com" { "amdgpu" } else { "gpu" };
            (size.numa, json!({"type": {"string": kind}}))
        };
        if let Some(numa) = numa {
            attributes[attribute] = json!({"int": numa});
        }
        let all = attributes.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        json!({"name": format!("{name}-{index}"), "attributes": attributes})
    };
    let gpus = topology.gpus().iter().enumerate();
    let gpus: Vec<_> =
        gpus.map(|(i, gpu)| device("gpu", i, gpu.address, gpu.numa.map(|numa| numa.0))).collect();
    let nics = topology.nics().iter().take(8).enumerate();
    let nics: Vec<_> =
        nics.map(|(i, nic)| device("nic", i, nic.address, nic.numa.map(|numa| numa.0))).collect();
    let slice = |driver: &str, devices: Vec<Value>| {
        json!({
            "kind": "ResourceSlice",
            "metadata": {"name": format!("{node}-{driver}")},
            "spec": {
                "driver": driver, "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            },
        })
    };
    vec![
        json!({"kind": "Node", "metadata": {"name": node}}),
        slice(size.gpus, gpus),
        slice("dra.net", nics),
    ]
}

/// A template in the namespace of [`pod_of`].
pub(crate) fn template(name: &str, spec: &Value) -> Value {
    json!({
        "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "team", "name": name},
        "spec": {"spec": spec},
    })
}

/// A claim that holds these devices of a node: `gpu0-nic3` on GB300.
pub(crate) fn claim(namespace: &str, name: &str, node: &str, devices: &str) -> ResourceClaim {
    let devices = devices.split('-').map(|device| {
        let index: usize = device[3..].parse().unwrap();
        match &device[..3] {
            "gpu" => ("gpu.nvidia.com", format!("gpu-{index}")),
            _ => ("dra.net", NICS[index].to_owned()),
        }
    });
    holding(namespace, name, node, devices)
}

/// A claim that holds devices of a node, each by driver and name.
pub(crate) fn holding(
    namespace: &str,
    name: &str,
    node: &str,
    devices: impl Iterator<Item = (&'static str, String)>,
) -> ResourceClaim {
    let result = |(driver, device): (&str, String)| json!({"request": "r", "driver": driver, "pool": node, "device": device});
    from(&json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": required(),
        "status": {"allocation": {"devices": {"results": devices.map(result).collect::<Vec<_>>()}}},
    }))
}

/// One GPU and its partner NIC, as admission requests them.
pub(crate) fn required() -> Value {
    json!({"devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
        ],
        "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": "gpu.nvidia.com/uuid"}],
    }})
}

/// GPUs of a class, and NICs that preferably share this attribute with them.
pub(crate) fn preferred(class: &str, attribute: &str, gpus: u32, nics: u32) -> Value {
    let way = |name: &str| json!({"name": name, "deviceClassName": "dranet.net", "count": nics});
    json!({"devices": {
        "requests": [
            {"name": "nic", "firstAvailable": [way("near"), way("any")]},
            {"name": "gpu", "exactly": {"deviceClassName": class, "count": gpus}},
        ],
        "constraints": [{"requests": ["gpu", "nic/near"], "matchAttribute": attribute}],
    }})
}

/// GPUs and NICs that need not be near each other.
pub(crate) fn unaligned(class: &str, gpus: u32, nics: u32) -> Value {
    json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": class, "count": gpus}},
        {"name": "nic", "exactly": {"deviceClassName": "dranet.net", "count": nics}},
    ]}})
}

/// Applies an object to a view, by its kind.
pub(crate) fn apply(view: &mut ClusterView, object: &Value) {
    match object["kind"].as_str().unwrap() {
        "Node" => view.apply(from::<Node>(object)),
        "DeviceClass" => view.apply(from::<DeviceClass>(object)),
        "ResourceSlice" => view.apply(from::<ResourceSlice>(object)),
        "NodeTopology" => view.apply(from::<NodeTopology>(object)),
        "ResourceClaimTemplate" => view.apply(from::<ResourceClaimTemplate>(object)),
        "Pod" => view.apply(from::<Pod>(object)),
        "ResourceClaim" => view.apply(from::<ResourceClaim>(object)),
        other => panic!("no object of kind `{other}` is expected"),
    }
    .unwrap();
}

/// A view of these objects.
pub(crate) fn cluster<'o>(objects: impl IntoIterator<Item = &'o Value>) -> ClusterView {
    let mut view = ClusterView::default();
    objects.into_iter().for_each(|object| apply(&mut view, object));
    view
}

/// A pod with these entries of `resourceClaims`.
pub(crate) fn pod(name: &str, claims: &Value) -> Pod {
    from(&json!({
        "metadata": {"namespace": "team", "name": name},
        "spec": {"containers": [], "resourceClaims": claims},
    }))
}

/// A pod with a claim of a template.
pub(crate) fn pod_of(template: &str) -> Pod {
    pod("p", &json!([{"name": "dranet", "resourceClaimTemplateName": template}]))
}

/// Asks about nodes without a time limit.
pub(crate) fn ask(
    ranker: &Ranker,
    pod: &Pod,
    nodes: &[&str],
    view: &ClusterView,
    now: Instant,
) -> Arc<Answer> {
    let nodes: Vec<_> = nodes.iter().map(|node| (*node).to_owned()).collect();
    ranker.prioritize(pod, &nodes, view, now, &|| false)
}

/// Asks an extender without memory.
pub(crate) fn answer(pod: &Pod, nodes: &[&str], view: &ClusterView) -> Arc<Answer> {
    ask(&Ranker::default(), pod, nodes, view, Instant::now())
}

/// The score of each node.
pub(crate) fn points(answer: &Answer) -> Vec<(&str, i64)> {
    answer.nodes.iter().map(|scored| (scored.node.as_str(), scored.score)).collect()
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}
