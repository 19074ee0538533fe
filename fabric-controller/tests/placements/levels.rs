//! Domains of the levels below a fabric, case by case and by chance.

use super::world::World;
use cluster_model::fabric_level::FabricLevel::Nvlink;
use cluster_model::names::{annotation, label};
use fabric_controller::PodStage;
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

/// 512 pods over 5,000 nodes with four levels: fabric, block, NVLink domain and node.
#[test]
fn a_large_gang_is_decided_on_within_a_second() {
    let mut world = World::new(0, 0);
    for domain in 0..278 {
        world.add_domain(&format!("f{}", domain / 70), Nvlink, &format!("r{domain:03}"), 18);
    }
    world.gang("a", 512, "d4");
    world.annotate("a", &[(LEVEL, "nvlink"), (SIZE, "16")]);
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
        sizes in prop::collection::vec((1..7_usize, 0..4_usize), 1..8),
        lost in prop::collection::vec((0..8_usize, 0..6_usize), 0..6),
        first in 0..9_usize,
    ) {
        let mut world = racks(&[4, 4, 3], &[6, 2]);
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
        _ => &[(LEVEL, "nvlink=preferred")],
    }
}

fn check(world: &World, sizes: &[(usize, usize)]) -> Result<(), TestCaseError> {
    let (_, groups) = world.groups();
    for group in groups {
        let number = (0..sizes.len()).find(|number| group.key.label == format!("g{number}"));
        let kind = number.map_or(0, |number| sizes[number].1);
        let mut domains: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for member in &group.members {
            let PodStage::Bound(node) = &member.stage else { continue };
            let labels = &world.view.inventory().node(node).unwrap().labels;
            let slice = if kind == 2 { member.slice.clone() } else { None };
            domains.entry(slice).or_default().insert(labels[label::NODE_NVLINK].to_string());
        }
        let is_split = domains.values().any(|there| there.len() > 1);
        prop_assert!(!is_split || !matches!(kind, 1 | 2), "{}: {domains:?}", group.key);
    }
    Ok(())
}
