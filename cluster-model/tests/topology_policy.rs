//! Which GPUs of a device plugin the kubelet's topology manager leaves a pod.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::topology_policy::{GpuGroups, TopologyPolicy};
use std::collections::BTreeSet;
use topology_graph::{Overlay, PciAddress, Topology};

#[test]
fn the_policy_is_read_from_a_configuration() {
    let of = |text: &str| TopologyPolicy::of_config(text).map_err(|error| error.to_string());
    assert_eq!(of(""), Ok(TopologyPolicy::None));
    assert_eq!(of("kind: KubeletConfiguration\n"), Ok(TopologyPolicy::None));
    let yaml = "kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n";
    assert_eq!(of(yaml), Ok(TopologyPolicy::SingleNumaNode));
    assert_eq!(of(r#"{"topologyManagerPolicy": "restricted"}"#), Ok(TopologyPolicy::Restricted));
    assert!(of("topologyManagerPolicy: strict").unwrap_err().contains("`strict`"));
    assert!(of("- a: [").is_err());
}

/// Two NUMA nodes of four GPUs: which GPUs are open if these are in use.
#[test]
fn the_kubelet_chooses_numa_nodes() {
    let (topology, _) =
        Topology::from_overlay(&Overlay::built_in("Standard_ND96isr_H100_v5").unwrap());
    let gpus: Vec<PciAddress> = topology.gpus().iter().map(|gpu| gpu.address).collect();
    let all: BTreeSet<PciAddress> = gpus.iter().copied().collect();
    let of = |policy: TopologyPolicy, used: &[usize], count: usize| {
        let free = gpus.iter().enumerate().filter(|(index, _)| !used.contains(index));
        let free = free.map(|(_, gpu)| *gpu).collect();
        let open = GpuGroups::new(policy, &topology, &all).candidates(&free, count)?;
        let index = |gpu: &PciAddress| gpus.iter().position(|known| known == gpu);
        Some(open.iter().filter_map(index).collect::<Vec<_>>())
    };
    let any = TopologyPolicy::None;
    let [best_effort, restricted, single] =
        [TopologyPolicy::BestEffort, TopologyPolicy::Restricted, TopologyPolicy::SingleNumaNode];
    assert_eq!(of(any, &[0], 2), Some(vec![1, 2, 3, 4, 5, 6, 7]));
    for policy in [best_effort, restricted, single] {
        assert_eq!(of(policy, &[], 4), Some(vec![0, 1, 2, 3]), "{policy}");
        assert_eq!(of(policy, &[0], 4), Some(vec![4, 5, 6, 7]), "{policy}");
        assert_eq!(of(policy, &[0, 1, 2, 3, 4, 5, 6], 2), None, "{policy}");
    }
    // One GPU is free on each.
    let used = [0, 1, 2, 4, 5, 6];
    assert_eq!(of(best_effort, &used, 2), Some(vec![3, 7]));
    assert_eq!(of(restricted, &used, 2), None);
    assert_eq!(of(single, &used, 2), None);
    // More than a NUMA node has.
    assert_eq!(of(restricted, &[0], 6), Some(vec![1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(of(single, &[], 6), None);
}
