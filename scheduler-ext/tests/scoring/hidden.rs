//! Nodes that bind NICs late, where pods without a claim have GPUs of the device plugin: their limits say how
//! many, and nothing says which. The chance is compared with a count over all choices.

use super::cluster::{answer, apply, from, pod_of};
use super::late::{TOPOLOGY, addresses, held, late_spec, missed, view};
use cluster_model::late_node::{LateDemand, LateNode};
use cluster_model::topology_policy::{GpuGroups, TopologyPolicy};
use cluster_model::view::ClusterView;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use topology_graph::{Chance, Level, NearestRequest, PciAddress};

/// A pod on a node with this many GPUs.
fn pod(name: &str, node: &str, gpus: usize) -> Value {
    json!({
        "kind": "Pod",
        "metadata": { "namespace": "team", "name": name },
        "spec": { "nodeName": node, "containers": [
            { "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } },
        ] },
        "status": { "phase": "Running" },
    })
}

/// With three GPUs in use, one NUMA node of four is left for a pod of four GPUs in 8 of 56 cases.
#[test]
fn gpus_of_pods_without_a_claim_count() {
    let policy = Some("single-numa-node");
    let nodes = [("any", None), ("free", policy), ("used", policy)];
    let mut view = view(&nodes, &[], &late_spec(4, 4, Some("numa")));
    let names = ["any", "free", "used"];
    let of = |view: &ClusterView| missed(&answer(&pod_of("late"), &names, view));
    assert_eq!(of(&view), [Some(0), Some(0), Some(0)]);
    for (node, pods) in [("any", [2, 1]), ("used", [2, 1])] {
        for (number, gpus) in pods.into_iter().enumerate() {
            apply(&mut view, &pod(&format!("{node}-{number}"), node, gpus));
        }
    }
    assert_eq!(of(&view), [Some(0), Some(0), Some(7)]);
    // Two more leave too few, whichever they are.
    apply(&mut view, &pod("more", "used", 2));
    assert_eq!(of(&view)[2], Some(8));
}

/// The pod of a claim for places is counted by its claim, before and after it starts.
#[test]
fn pods_with_places_count_once() {
    for gpus in [&[][..], &[0, 1, 2, 3]] {
        let mut claim = serde_json::to_value(held("a", 0, gpus, &[0, 1, 2, 3])).unwrap();
        claim["status"]["reservedFor"] =
            json!([{ "resource": "pods", "name": "train", "uid": "u" }]);
        let nodes = [("a", Some("best-effort"))];
        let mut view = view(&nodes, &[from(&claim)], &late_spec(4, 4, Some("numa")));
        apply(&mut view, &pod("train", "a", 4));
        assert_eq!(missed(&answer(&pod_of("late"), &["a"], &view)), [Some(0)], "{gpus:?}");
    }
}

/// The choices of `count` of these.
fn choices(all: &[PciAddress], count: usize) -> Vec<BTreeSet<PciAddress>> {
    let chosen = (0..1_u32 << all.len()).filter(|set| set.count_ones() as usize == count);
    let of = |set: u32| {
        let own = all.iter().enumerate().filter(move |(index, _)| set >> index & 1 == 1);
        own.map(|(_, gpu)| *gpu).collect()
    };
    chosen.map(of).collect()
}

/// The share as parts of the whole: for each choice of the GPUs in use, the share of the kubelet's choices
/// that find near NICs.
fn counted(
    (policy, open, hidden): (TopologyPolicy, &[PciAddress], usize),
    nics: &[PciAddress],
    (demand, level): (LateDemand, Level),
) -> f64 {
    let all = TOPOLOGY.gpus().iter().map(|gpu| gpu.address).collect();
    let groups = GpuGroups::new(policy, &TOPOLOGY, &all);
    let mut shares = Vec::new();
    for used in choices(open, hidden) {
        let free = open.iter().filter(|gpu| !used.contains(gpu)).copied().collect();
        let candidates = groups.candidates(&free, demand.gpus).unwrap_or_default();
        let candidates: Vec<PciAddress> = candidates.into_iter().collect();
        let of_pod = choices(&candidates, demand.gpus);
        let near = of_pod.iter().filter(|gpus| {
            let request = NearestRequest {
                gpus: gpus.iter().copied().collect(),
                nics: nics.to_vec(),
                count: demand.nics,
                within: Some(level),
                rest: Vec::new(),
            };
            TOPOLOGY.nearest(&request).is_some()
        });
        let near = f64::from(u32::try_from(near.count()).unwrap());
        let all = f64::from(u32::try_from(of_pod.len()).unwrap());
        shares.push(if all > 0.0 { near / all } else { 0.0 });
    }
    let number = f64::from(u32::try_from(shares.len()).unwrap());
    if shares.is_empty() { 0.0 } else { shares.iter().sum::<f64>() / number }
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn share(chance: Option<&Chance>) -> f64 {
    chance.filter(|chance| chance.all > 0).map_or(0.0, |it| it.served as f64 / it.all as f64)
}

const POLICIES: [&str; 4] = ["none", "best-effort", "restricted", "single-numa-node"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_chance_is_that_over_all_choices(
        policy in prop::sample::select(POLICIES.to_vec()),
        gpus in prop::sample::subsequence((0..8).collect::<Vec<usize>>(), 0..4),
        nics in prop::sample::subsequence((0..8).collect::<Vec<usize>>(), 4),
        (hidden, gpu_count, nic_count) in (0..4_usize, 1..5_usize, 1..5_usize),
        level in prop::sample::select(Level::ALL.to_vec()),
    ) {
        // The NICs of a claim are as many as its GPUs.
        let nics = &nics[..gpus.len()];
        let claims = if gpus.is_empty() { vec![] } else { vec![held("a", 0, &gpus, nics)] };
        let mut view = view(&[("a", Some(policy))], &claims, &late_spec(1, 1, None));
        if hidden > 0 {
            apply(&mut view, &pod("blind", "a", hidden));
        }
        let demand = LateDemand { gpus: gpu_count, nics: nic_count, within: Some(level) };
        let late = LateNode::new(&view, "a", view.inventory().state()).unwrap();
        prop_assert_eq!(late.hidden_gpus(), hidden);
        let expected = late.expect(demand);
        let [all_gpus, all_nics] = addresses();
        let free = |all: &[String], used: &[usize]| -> Vec<PciAddress> {
            let free = all.iter().enumerate().filter(|(index, _)| !used.contains(index));
            free.map(|(_, address)| address.parse().unwrap()).collect()
        };
        let (open, free_nics) = (free(&all_gpus, &gpus), free(&all_nics, nics));
        let policy: TopologyPolicy = policy.parse().unwrap();
        let counted = counted((policy, &open, hidden), &free_nics, (demand, level));
        let found = share(expected.chances.get(&level));
        prop_assert!((found - counted).abs() < 1e-9, "{} and not {}", found, counted);
    }
}

/// Devices that are free while pods start one after the other.
#[derive(Clone)]
struct Free {
    gpus: Vec<PciAddress>,
    nics: Vec<PciAddress>,
}

impl Free {
    /// Whether all pods that matter get near NICs, whatever GPUs the kubelet chooses for each, and
    /// whichever starts next.
    fn all_are_near(&self, pods: &[(LateDemand, bool)]) -> bool {
        (0..pods.len()).all(|next| {
            let mut others = pods.to_vec();
            let (demand, matters) = others.remove(next);
            choices(&self.gpus, demand.gpus).into_iter().all(|gpus| {
                let request = NearestRequest {
                    gpus: gpus.iter().copied().collect(),
                    nics: self.nics.clone(),
                    count: demand.nics,
                    within: demand.within,
                    rest: Vec::new(),
                };
                let nics = TOPOLOGY.nearest(&request);
                if matters && nics.is_none() {
                    return false;
                }
                let mut free = self.clone();
                free.gpus.retain(|gpu| !gpus.contains(gpu));
                free.nics.retain(|nic| !nics.iter().flatten().any(|taken| taken == nic));
                free.all_are_near(&others)
            })
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Beside pods that have not started, and GPUs of pods without a claim.
    #[test]
    fn surely_near_pods_are_near_whatever_happens(
        gone in prop::sample::subsequence((0..8).collect::<Vec<usize>>(), 2..5),
        gone_nics in prop::sample::subsequence((0..8).collect::<Vec<usize>>(), 5),
        (waiting, hidden) in (0..3_usize, 0..2_usize),
        (gpu_count, nic_count) in (1..3_usize, 1..3_usize),
        level in prop::sample::select(vec![Level::Switch, Level::Root, Level::Numa]),
    ) {
        let gone_nics = &gone_nics[..gone.len()];
        let mut claims = vec![held("a", 0, &gone, gone_nics)];
        if waiting > 0 {
            // As many places as GPUs.
            claims.push(held("a", 5, &[], &(0..waiting).collect::<Vec<_>>()));
        }
        let mut view = view(&[("a", None)], &claims, &late_spec(1, 1, None));
        if hidden > 0 {
            apply(&mut view, &pod("blind", "a", hidden));
        }
        let within = Some(level);
        let demand = LateDemand { gpus: gpu_count, nics: nic_count, within };
        let state = view.inventory().state();
        let sure = LateNode::surely_near(&view, "a", state, (demand, 2)).unwrap();
        let [all_gpus, all_nics] = addresses();
        let free = |all: &[String], used: &[usize]| -> Vec<PciAddress> {
            let free = all.iter().enumerate().filter(|(index, _)| !used.contains(index));
            free.map(|(_, address)| address.parse().unwrap()).collect()
        };
        let free = Free { gpus: free(&all_gpus, &gone), nics: free(&all_nics, gone_nics) };
        let numa = Some(Level::Numa);
        let mut pods = vec![(LateDemand { gpus: hidden, nics: 0, within: None }, false); hidden];
        if waiting > 0 {
            pods.push((LateDemand { gpus: waiting, nics: waiting, within: numa }, false));
        }
        pods.extend(vec![(demand, true); sure]);
        prop_assert!(sure == 0 || free.all_are_near(&pods), "{} are not sure", sure);
        // Beside nothing unknown, and with NICs that divide evenly, it is not too few either.
        if waiting == 0 && hidden == 0 && nic_count % gpu_count == 0 && sure < 2 {
            let more = vec![(demand, true); sure + 1];
            let there_is_room = free.gpus.len() >= more.len() * gpu_count;
            prop_assert!(!there_is_room || !free.all_are_near(&more), "more than {} are", sure);
        }
    }
}

/// Two pods of two GPUs each are surely near on the half of a machine that is free, and one beside
/// a pod that has not started.
#[test]
fn a_pod_that_has_not_started_takes_room_of_the_sure_ones() {
    let half = [0, 1, 2, 3];
    let demand = LateDemand { gpus: 2, nics: 2, within: Some(Level::Numa) };
    let sure = |claims: &[_]| {
        let view = view(&[("a", None)], claims, &late_spec(1, 1, None));
        LateNode::surely_near(&view, "a", view.inventory().state(), (demand, 4)).unwrap()
    };
    assert_eq!(sure(&[held("a", 0, &half, &half)]), 2);
    assert_eq!(sure(&[held("a", 0, &half, &half), held("a", 4, &[], &[0, 1])]), 1);
}

#[test]
fn pods_of_other_resources_do_not_count() {
    let mut view = view(&[("a", Some("restricted"))], &[], &late_spec(4, 4, Some("numa")));
    let mut other = pod("amd", "a", 3);
    other["spec"]["containers"][0]["resources"]["limits"] = json!({ "amd.com/gpu": "3" });
    apply(&mut view, &other);
    assert_eq!(missed(&answer(&pod_of("late"), &["a"], &view)), [Some(0)]);
}
