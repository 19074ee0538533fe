//! Attributes with lists (feature `DRAListTypeAttributes`): constraints match them by common elements.
//!
//! NVIDIA's driver publishes `numaNode` as a list with one element if its own gate is on
//! (dra-driver-nvidia-gpu, `addNumaNodeAttribute` in `cmd/gpu-kubelet-plugin/deviceinfo.go`).
//! Kubernetes' helper for drivers lists the nearest NUMA nodes of the same socket
//! (`GetNUMANodeAttribute` in `deviceattribute/numa_linux.go`).

use crate::cluster::*;
use crate::laws::usable;
use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster_model::view::ClusterView;
use dra_allocator::{
    Claim, ClaimName, DeviceId, FeatureGates, Limits, MinorVersion, Outcome, Settings, allocate,
};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use topology_graph::PathKind;

const NUMA: &str = "resource.kubernetes.io/numaNode";

/// What a GPU of a NUMA node publishes.
type List = fn(i64) -> Vec<i64>;

/// H100 nodes whose GPUs publish lists of NUMA nodes, with or without the feature.
fn fleet(lists: &[List], is_on: bool) -> ClusterView {
    let mut view = cluster(&[]);
    let mut gates = FeatureGates::defaults_of(MinorVersion::V1_37);
    assert!(gates.set("DRAListTypeAttributes", is_on));
    view.set_settings(Settings::with_gates(MinorVersion::V1_37, gates));
    for (index, list) in lists.iter().enumerate() {
        let publish = |gpu: &mut Value| {
            let node = gpu["attributes"][NUMA]["int"].as_i64().unwrap();
            gpu["attributes"][NUMA] = json!({ "ints": list(node) });
        };
        let built = Built::new(H100, &[], &SharingArgs::default()).with_gpus(publish);
        built.put(&mut view, &format!("node-{index}"), index);
    }
    view
}

fn plan(view: &ClusterView, gpus: u32, nics: &str) -> Plan {
    let annotations = [("aligned-nics", nics), ("pairing", "group"), ("alignment", "numa")];
    let pod = pod("nvidia.com/gpu", gpus, &annotations);
    admit(&pod, view, &Policy::default()).unwrap().planned.unwrap().plan
}

/// The farthest path between the devices that the pod gets on a node.
fn farthest(view: &ClusterView, plan: &Plan, node: &str) -> Option<PathKind> {
    let claims = [Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap()];
    let limits = Limits::steps(Policy::default().max_steps);
    let state = view.inventory().state();
    let found = allocate(view.inventory(), node, &claims, state, view.settings(), limits);
    let Outcome::Allocated(claims) = found.outcome else { return None };
    let devices = usable(view, node);
    let given = |id: &DeviceId| claims[0].results.iter().any(|result| result.device == *id);
    let gpus = devices.gpus.iter().filter(|(_, it)| given(it.id())).map(|(address, _)| *address);
    let nics = devices.nics.iter().filter(|(_, it)| given(it.id())).map(|(address, _)| *address);
    let nics: Vec<_> = nics.collect();
    gpus.flat_map(|gpu| nics.iter().map(move |nic| (gpu, *nic)))
        .map(|(gpu, nic)| devices.topology.path(gpu, nic))
        .max()
}

#[test]
fn a_list_with_one_numa_node_joins_like_the_node() {
    let own = |node| vec![node];
    for (gpus, nics) in [(1, "2"), (2, "2"), (4, "4")] {
        let view = fleet(&[own], true);
        let plan = plan(&view, gpus, nics);
        assert_eq!(plan.join, "numa", "{plan:?}");
        assert!(farthest(&view, &plan, "node-0") <= Some(PathKind::Node));
        // Without the feature constraints match no list.
        let view = fleet(&[own], false);
        assert_eq!(self::plan(&view, gpus, nics).join, "cells");
    }
}

/// A list of both NUMA nodes would tie GPUs to NICs of the other one. No node takes such a pod.
#[test]
fn lists_of_several_numa_nodes_do_not_join() {
    let (own, both): (List, List) = (|node| vec![node], |node| vec![node, 1 - node]);
    for lists in [&[both][..], &[own, both], &[both, own]] {
        let view = fleet(lists, true);
        let plan = plan(&view, 1, "2");
        for index in 0..lists.len() {
            let farthest = farthest(&view, &plan, &format!("node-{index}"));
            assert!(farthest.is_some() && farthest <= Some(PathKind::Node), "{index}: {plan:?}");
        }
    }
}
