//! The reasons of an answer, in the scheduler's words.

use serde_json::Value;

/// A part of the reason that `explain` gives for nodes, and the scheduler's words for the same.
const REASONS: &[(&str, &str)] = &[
    ("is cordoned", "were unschedulable"),
    ("has the taint", "had untolerated taint"),
    ("too little `cpu`", "Insufficient cpu"),
    ("host port", "didn't have free ports"),
    ("must not be near (pod anti-affinity)", "didn't match pod anti-affinity rules"),
    ("(their pod anti-affinity)", "didn't satisfy existing pods anti-affinity rules"),
    ("(pod affinity)", "didn't match pod affinity rules"),
    ("(topology spread constraint)", "didn't match pod topology spread constraints"),
    ("has a volume in another zone", "didn't match PersistentVolume's node affinity"),
    ("finds no free volume", "didn't find available persistent volumes to bind"),
    ("more storage than is left", "did not have enough free storage"),
    ("as many volumes of its driver", "exceed max volume count"),
    ("only one pod may use it", "ReadWriteOncePod access mode already in-use by another pod"),
];
/// The scheduler's words of which it can say several of one node (`FindPodVolumes`).
const VOLUMES: [&str; 3] = [
    "didn't match PersistentVolume's node affinity",
    "didn't find available persistent volumes to bind",
    "did not have enough free storage",
];
const NOT_SELECTED: &str = "didn't match Pod's node affinity/selector";
/// The scheduler's words where every alternative of the affinity names nodes.
const NOT_NAMED: &str = "didn't satisfy plugin(s) [NodeAffinity]";

/// The reasons of which `explain` names another number of nodes than the scheduler, which says `0/4 nodes are
/// available: 1 node(s) were unschedulable, 3 cannot allocate all claims. preemption: …`.
pub(super) fn different(explained: &Value, said: &str) -> Vec<String> {
    let Some((_, said)) = said.split_once(" nodes are available: ") else { return Vec::new() };
    let said = said.split(" preemption: ").next().unwrap_or_default();
    let mut all = vec![(NOT_SELECTED, count(&explained["notSelected"]))];
    for (ours, words) in REASONS {
        let barred = explained["barred"].as_array().into_iter().flatten();
        let of_reason =
            barred.filter(|it| it["why"].as_str().is_some_and(|why| why.contains(ours)));
        all.push((words, of_reason.map(|it| count(&it["nodes"])).sum()));
    }
    all.into_iter()
        .filter(|(words, ours)| {
            let mut theirs = counted(said, words);
            if *words == NOT_SELECTED {
                theirs += counted(said, NOT_NAMED);
            }
            // Of several volumes that a node cannot have, `explain` names the first.
            if VOLUMES.contains(words) { *ours > theirs } else { *ours != theirs }
        })
        .map(|(words, ours)| format!("explain: {ours} nodes {words}; the scheduler: {said}"))
        .collect()
}

fn count(nodes: &Value) -> usize {
    nodes.as_array().map_or(0, Vec::len)
}

/// The number before these words.
fn counted(said: &str, words: &str) -> usize {
    let parts = said.split(", ").filter(|part| part.contains(words));
    parts.filter_map(|part| part.split(' ').next()?.parse::<usize>().ok()).sum()
}
