//! Domains of the levels below a fabric, case by case and by chance.

use super::world::World;
use cluster_model::fabric_level::FabricLevel::Nvlink;
use cluster_model::names::{annotation, label};
use fabric_controller::{FullFabricPolicy, PodStage};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const LEVEL: &str = annotation::FABRIC_LEVEL;
const SIZE: &str = annotation::DOMAIN_SIZE;

/// Two fabrics of NVLink domains of these numbers of nodes.
fn racks(first: &[usize], second: &[usize]) -> World {
    let mut world = World::new(0, 0);
    for (fabric, racks) in [("f0", first), ("f1", second)] {
        for (rack, nodes) in racks.iter().enumerate() {
            world.add_domain(fabric, Nvlink, &format!("{fabric}r{rack}"), *nodes);
        }
    }
    world
}

#[test]
fn a_gang_gets_one_domain_of_its_level_or_waits() {
    for (first, second, pods, annotations, expected) in [
        // Without a level the fabric with the least room left; with one, the domain.
        (&[4, 4][..], &[6][..], 5, &[][..], "5 to f1"),
        (&[4, 4], &[5, 5], 5, &[(LEVEL, "nvlink")], "5 to f1 5 in f1r0"),
        (&[4, 4], &[6, 5], 5, &[(LEVEL, "nvlink=required")], "5 to f1 5 in f1r1"),
        (&[4, 4], &[4], 5, &[(LEVEL, "nvlink")], "TooLarge"),
        (&[4, 4], &[4], 5, &[(LEVEL, "fabric")], "5 to f0"),
        // The fewest domains, evenly.
        (&[4, 4], &[4], 6, &[(LEVEL, "nvlink=preferred")], "6 to f0 3 in f0r0 3 in f0r1"),
        (&[2, 2, 2], &[4, 4], 6, &[(LEVEL, "nvlink=preferred")], "6 to f1 3 in f1r0 3 in f1r1"),
        // Nodes have no such label.
        (&[4], &[4, 4], 6, &[(LEVEL, "block=preferred")], "6 to f1"),
        (&[4], &[4, 4], 3, &[(LEVEL, "block")], "TooLarge"),
        // Slices of two.
        (&[3, 3], &[4, 4], 6, &[(LEVEL, "nvlink"), (SIZE, "2")], "6 to f1 4 in f1r0 2 in f1r1"),
        (
            &[3, 3, 3],
            &[4],
            6,
            &[(LEVEL, "nvlink"), (SIZE, "2")],
            "6 to f0 2 in f0r0 2 in f0r1 2 in f0r2",
        ),
        (&[3, 3], &[1, 1, 1, 1, 1, 1], 6, &[(LEVEL, "nvlink"), (SIZE, "2")], "TooLarge"),
        // The last slice is smaller.
        (
            &[2, 2, 1],
            &[3],
            5,
            &[(LEVEL, "nvlink"), (SIZE, "2")],
            "5 to f0 2 in f0r0 2 in f0r1 1 in f0r2",
        ),
        (&[3, 4], &[3], 7, &[(LEVEL, "nvlink"), (SIZE, "4")], "7 to f0 3 in f0r0 4 in f0r1"),
        (
            &[2, 2, 2],
            &[3],
            5,
            &[(LEVEL, "nvlink"), (SIZE, "2")],
            "5 to f0 2 in f0r0 2 in f0r1 1 in f0r2",
        ),
        (&[5], &[4, 2], 5, &[(LEVEL, "nvlink"), (SIZE, "2")], "5 to f0 5 in f0r0"),
        (&[2, 2], &[3, 1], 5, &[(LEVEL, "nvlink"), (SIZE, "2")], "TooLarge"),
    ] {
        let mut world = racks(first, second);
        world.gang("a", pods, "d4");
        world.annotate("a", annotations);
        let found = world.told();
        assert!(
            found["a"].starts_with(expected),
            "{first:?} {second:?} {annotations:?}: {found:?}"
        );
    }
}

/// A fabric of blocks, each with NVLink domains of these numbers of nodes.
fn blocks(blocks: &[&[usize]]) -> World {
    let mut world = World::new(0, 0);
    for (block, racks) in blocks.iter().enumerate() {
        for (rack, nodes) in racks.iter().enumerate() {
            world.add_rack("f", &format!("b{block}"), &format!("b{block}r{rack}"), *nodes);
        }
    }
    world
}

#[test]
fn several_levels_are_kept_or_preferred_together() {
    let both = "block,nvlink=preferred";
    for (places, pods, levels, size, expected) in [
        // One block, and in it the fewest NVLink domains.
        (&[&[4, 4][..], &[3, 3, 3]][..], 8, both, None, "8 to f 8 in b0 4 in b0r0 4 in b0r1"),
        (&[&[2, 2, 2], &[4, 4]], 6, both, None, "6 to f 6 in b1 3 in b1r0 3 in b1r1"),
        // The block that is large enough, although another has a larger NVLink domain.
        (&[&[5], &[4, 4]], 6, both, None, "6 to f 6 in b1 3 in b1r0 3 in b1r1"),
        (&[&[4], &[4]], 6, both, None, "TooLarge"),
        // Both preferred: the fewest blocks first.
        (
            &[&[4, 2], &[4]],
            8,
            "block=preferred,nvlink=preferred",
            None,
            "8 to f 4 in b0 4 in b0r0 4 in b1 4 in b1r0",
        ),
        (
            &[&[2, 2, 2], &[4], &[1]],
            5,
            "nvlink=preferred,block=preferred",
            None,
            "5 to f 5 in b0 2 in b0r0 2 in b0r1 1 in b0r2",
        ),
        // Slices in NVLink domains, all of them in a block.
        (&[&[3], &[2, 3]], 4, "block,nvlink", Some("2"), "4 to f 4 in b1 2 in b1r0 2 in b1r1"),
        (&[&[3], &[3]], 4, "block,nvlink", Some("2"), "TooLarge"),
        (
            &[&[3], &[3]],
            4,
            "block=preferred,nvlink",
            Some("2"),
            "4 to f 2 in b0 2 in b0r0 2 in b1 2 in b1r0",
        ),
        // All in an NVLink domain. Its block follows.
        (&[&[3], &[4]], 4, "block=preferred,nvlink", None, "4 to f 4 in b1 4 in b1r0"),
        (&[&[3, 3]], 4, "block=preferred,nvlink", None, "TooLarge"),
    ] {
        let mut world = blocks(places);
        world.gang("a", pods, "d4");
        let size = size.map(|size| (SIZE, size));
        world.annotate("a", &std::iter::once((LEVEL, levels)).chain(size).collect::<Vec<_>>());
        let found = world.told();
        assert!(found["a"].starts_with(expected), "{places:?} {levels} {size:?}: {found:?}");
    }
}

/// A pod that is created again goes back to the domains of its slice and of its group.
#[test]
fn a_recreated_pod_joins_its_domains_of_several_levels() {
    let mut world = blocks(&[&[4, 4], &[4, 4]]);
    let asked = [(LEVEL, "block,nvlink"), (SIZE, "2")];
    world.gang("a", 4, "d4");
    world.annotate("a", &asked);
    world.release();
    assert!(world.bind(0).is_empty());
    // The whole second slice, and a pod of the first.
    for pod in ["a-0", "a-2", "a-3"] {
        world.delete(pod);
        world.pod(pod, "a", "d4", &json!({}));
    }
    world.annotate("a", &asked);
    assert_eq!(world.told()["a"], "3 to f 3 in b0 3 in b0r0");
}

#[test]
fn a_recreated_pod_joins_its_domain() {
    let mut world = racks(&[4, 4], &[]);
    world.gang("a", 3, "d4");
    world.annotate("a", &[(LEVEL, "nvlink")]);
    world.release();
    assert!(world.bind(0).is_empty());
    world.delete("a-1");
    world.pod("a-1", "a", "d4", &json!({}));
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "1 to f0 1 in f0r0");
    // Another gang has taken the room.
    world.plain(
        "other",
        "f0-f0r0-3",
        &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}),
    );
    let on: BTreeSet<_> = world.nodes_of("a").into_iter().collect();
    let free = (0..4)
        .map(|node| format!("f0-f0r0-{node}"))
        .find(|node| !on.contains(node) && node != "f0-f0r0-3");
    if let Some(node) = free {
        world.plain(
            "another",
            &node,
            &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}),
        );
    }
    let found = world.told();
    assert!(found["a"].starts_with("FabricFull"), "{found:?}");
}

/// The clique of a rack has a new name, as after a restart of its fabric manager, or a node of it moves to
/// another rack.
#[test]
fn a_recreated_pod_joins_the_domain_that_its_group_is_in_now() {
    for (moved, to, expected) in [
        (&["0", "1", "2", "3", "4"][..], "new", "1 to f0 1 in new"),
        (&["0"], "f0r1", "1 to f0 1 in f0r0"),
    ] {
        for asked in [&[(LEVEL, "nvlink")][..], &[(LEVEL, "nvlink"), (SIZE, "4")]] {
            let mut world = racks(&[5, 5], &[]);
            world.gang("a", 4, "d4");
            world.annotate("a", asked);
            world.release();
            assert!(world.bind(0).is_empty());
            world.delete("a-3");
            for node in moved {
                world.move_node(&format!("f0-f0r0-{node}"), Nvlink, to);
            }
            world.pod("a-3", "a", "d4", &json!({}));
            world.annotate("a", asked);
            assert_eq!(world.told()["a"], expected, "{moved:?} {asked:?}");
        }
    }
}

/// A rack loses a node, and another rack of the same fabric has room for the whole gang.
#[test]
fn a_gang_whose_domain_lost_its_room_moves_within_its_fabric() {
    for (asked, pods) in [(&[(LEVEL, "nvlink")][..], 3), (&[(LEVEL, "nvlink"), (SIZE, "3")], 3)] {
        let mut world = racks(&[3, 4], &[]);
        world.gang("a", pods, "d4");
        world.annotate("a", asked);
        world.release();
        world.bind_one("a-0", 0);
        let taken = world.nodes_of("a");
        let lost = (0..3).map(|node| format!("f0-f0r0-{node}")).find(|it| !taken.contains(it));
        world.remove_node(&lost.unwrap());
        world.set_unschedulable("a-1");
        world.set_unschedulable("a-2");
        let found = world.told();
        assert!(
            found["a"].starts_with("FabricFull: the group is on f0, where 0 of 1 waiting pods fit")
                && found["a"]
                    .contains("; other domains of the fabric have room for the whole group"),
            "{found:?}"
        );
        world.rules.full_fabric = FullFabricPolicy::Evict;
        assert_eq!(world.told()["a"], "moves 3");
        // Nothing has room for all of them.
        world.plain(
            "other",
            "f0-f0r1-3",
            &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}),
        );
        world.plain(
            "another",
            "f0-f0r1-2",
            &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}),
        );
        let found = world.told();
        assert!(found["a"].starts_with("FabricFull") && !found["a"].contains("other"), "{found:?}");
    }
}

/// 512 pods over 5,000 nodes with four levels: fabric, block, NVLink domain and node.
#[test]
fn a_large_gang_is_decided_on_within_a_second() {
    let mut world = World::new(0, 0);
    for rack in 0..278 {
        let (fabric, block) = (rack / 70, rack / 35);
        world.add_rack(&format!("f{fabric}"), &format!("b{block}"), &format!("r{rack:03}"), 18);
    }
    world.gang("a", 512, "d4");
    world.annotate("a", &[(LEVEL, "block,nvlink"), (SIZE, "16")]);
    let begun = Instant::now();
    let found = world.told();
    let took = begun.elapsed();
    assert!(found["a"].starts_with("512 to f"), "{found:?}");
    eprintln!("512 pods over {} nodes: {took:?}", 278 * 18);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever gangs come, end and lose pods, no gang or slice that requires a domain has two, and
    /// every released pod has a place.
    #[test]
    fn no_gang_is_split_over_domains(
        sizes in prop::collection::vec((1..7_usize, 0..6_usize), 1..8),
        lost in prop::collection::vec((0..8_usize, 0..6_usize), 0..6),
        first in 0..9_usize,
    ) {
        let mut world = racks(&[4, 4, 3], &[6, 2]);
        world.add_rack("f2", "b0", "b0r0", 4);
        world.add_rack("f2", "b0", "b0r1", 2);
        world.add_rack("f2", "b1", "b1r0", 5);
        for (number, (pods, kind)) in sizes.iter().enumerate() {
            let gang = format!("g{number}");
            world.gang(&gang, *pods, "d4");
            world.annotate(&gang, asked(*kind));
        }
        for step in 0..=lost.len() {
            world.release();
            let stuck = world.bind(first + step);
            prop_assert!(stuck.is_empty(), "stranded: {stuck:?}");
            check(&world, &sizes)?;
            let Some((gang, pod)) = lost.get(step) else { break };
            let Some((_, kind)) = sizes.get(*gang) else { continue };
            let gang = format!("g{gang}");
            let Some(name) = world.of(&gang).get(*pod).cloned() else { continue };
            world.delete(&name);
            world.pod(&name, &gang, "d4", &json!({}));
            world.annotate(&gang, asked(*kind));
        }
    }
}

fn asked(kind: usize) -> &'static [(&'static str, &'static str)] {
    match kind {
        0 => &[],
        1 => &[(LEVEL, "nvlink")],
        2 => &[(LEVEL, "nvlink"), (SIZE, "2")],
        3 => &[(LEVEL, "nvlink=preferred")],
        4 => &[(LEVEL, "block,nvlink"), (SIZE, "2")],
        _ => &[(LEVEL, "block,nvlink=preferred")],
    }
}

fn check(world: &World, sizes: &[(usize, usize)]) -> Result<(), TestCaseError> {
    let (_, groups) = world.groups();
    for group in groups {
        let number = (0..sizes.len()).find(|number| group.key.label == format!("g{number}"));
        let kind = number.map_or(0, |number| sizes[number].1);
        let mut domains: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        let mut blocks: BTreeSet<String> = BTreeSet::new();
        for member in &group.members {
            let PodStage::Bound(node) = &member.stage else { continue };
            let labels = &world.view.inventory().node(node).unwrap().labels;
            let slice = if matches!(kind, 2 | 4) { member.slice.clone() } else { None };
            domains.entry(slice).or_default().insert(labels[label::NODE_NVLINK].to_string());
            if matches!(kind, 4 | 5) {
                blocks.insert(labels[label::NODE_BLOCK].to_string());
            }
        }
        let is_split = domains.values().any(|there| there.len() > 1);
        prop_assert!(!is_split || !matches!(kind, 1 | 2 | 4), "{}: {domains:?}", group.key);
        prop_assert!(blocks.len() < 2, "{}: {blocks:?}", group.key);
    }
    Ok(())
}
