//! What users of other schedulers have reported about topologies and gangs, on this one. Each test names
//! the report.

use super::world::World;
use cluster_model::fabric_level::FabricLevel::Nvlink;
use cluster_model::names::annotation;
use fabric_controller::FullFabricPolicy;
use fabric_controller::size::Size;
use serde_json::{Value, json};

const LEVEL: &str = annotation::FABRIC_LEVEL;
const SIZE: &str = annotation::DOMAIN_SIZE;

/// A fabric of NVLink domains of these numbers of nodes, `f-rN-M`.
fn racks(racks: &[usize]) -> World {
    let mut world = World::new(0, 0);
    for (rack, nodes) in racks.iter().enumerate() {
        world.add_domain("f", Nvlink, &format!("r{rack}"), *nodes);
    }
    world
}

/// A pod of others that leaves nothing of these nodes.
fn fill(world: &mut World, nodes: &[&str]) {
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]});
    for node in nodes {
        world.plain(&format!("other-{node}"), node, &spec);
    }
}

/// Pods that may not share a node.
fn apart() -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"dranet.io/fabric-group": "a"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}}})
}

/// NVIDIA/nvcf#598: pods were packed into the fullest clique, where the rest of the gang had no room.
#[test]
fn a_gang_does_not_begin_in_a_domain_without_room_for_all() {
    let mut world = racks(&[4, 4]);
    fill(&mut world, &["f-r0-0", "f-r0-1", "f-r0-2"]);
    world.gang("a", 2, "d4");
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "2 to f 2 in r1");
}

/// volcano-sh/volcano#5205: with anti-affinity, a preferred level was ignored.
#[test]
fn pods_that_may_not_share_a_node_share_the_preferred_domain() {
    let mut world = racks(&[2, 2, 2]);
    fill(&mut world, &["f-r0-1", "f-r1-1"]);
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    for pod in ["a-0", "a-1"] {
        world.pod(pod, "a", "d1", &apart());
    }
    world.annotate("a", &[(LEVEL, "nvlink=preferred")]);
    assert_eq!(world.told()["a"], "2 to f 2 in r2");
}

/// volcano-sh/volcano#4343: the third and the fourth pod went to different domains.
#[test]
fn a_preferred_level_takes_the_fewest_domains() {
    let mut world = racks(&[2, 2, 2]);
    world.gang("a", 4, "d4");
    world.annotate("a", &[(LEVEL, "nvlink=preferred")]);
    let found = world.told();
    assert!(found["a"].matches(" 2 in r").count() == 2, "{found:?}");
}

/// koordinator-sh/koordinator#3181, volcano-sh/volcano#3877: pods that are created again after the gang
/// has started left its domain.
#[test]
fn late_pods_stay_in_the_domain_of_their_gang() {
    let mut world = racks(&[3, 8]);
    world.gang("a", 3, "d4");
    world.annotate("a", &[(LEVEL, "nvlink")]);
    world.release();
    assert!(world.bind(0).is_empty());
    for pod in ["a-1", "a-2"] {
        world.delete(pod);
        world.pod(pod, "a", "d4", &json!({}));
    }
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "2 to f 2 in r0");
}

/// kubernetes-sigs/kueue#9615, #14092: a node is cordoned between the choice and the scheduling of a pod.
/// The pod waited for ever, or was released to that node again and again.
#[test]
fn a_gang_whose_nodes_are_cordoned_moves_to_a_domain_with_room() {
    let mut world = racks(&[3, 4]);
    world.gang("a", 3, "d4");
    world.annotate("a", &[(LEVEL, "nvlink")]);
    world.release();
    world.bind_one("a-0", 0);
    let taken = world.nodes_of("a").pop().unwrap();
    for node in ["f-r0-0", "f-r0-1", "f-r0-2"] {
        if node != taken {
            world.cordon(node);
        }
    }
    for pod in ["a-1", "a-2"] {
        world.set_unschedulable(pod);
    }
    let found = world.told();
    assert!(found["a"].starts_with("FabricFull: the group is on f, where 0 of 2"), "{found:?}");
    // A pod that is created again stays behind its gate.
    world.delete("a-1");
    world.pod("a-1", "a", "d4", &json!({}));
    world.annotate("a", &[(LEVEL, "nvlink")]);
    let found = world.told();
    assert!(found["a"].starts_with("FabricFull: the group is on f, where 0 of 2"), "{found:?}");
    world.rules.full_fabric = FullFabricPolicy::Evict;
    assert_eq!(world.told()["a"], "moves 2");
    for pod in ["a-0", "a-2"] {
        world.delete(pod);
        world.pod(pod, "a", "d4", &json!({}));
    }
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "3 to f 3 in r1");
}

/// kubernetes-sigs/jobset#1088: a pod exists whose node does not, and the next pod of its gang got an
/// empty domain.
#[test]
fn a_node_that_is_gone_does_not_hide_the_domain_of_its_pod() {
    let mut world = racks(&[3, 3]);
    world.gang("a", 2, "d4");
    world.annotate("a", &[(LEVEL, "nvlink")]);
    world.release();
    assert!(world.bind(0).is_empty());
    world.delete("a-1");
    let node = world.nodes_of("a").pop().unwrap();
    world.remove_node(&node);
    world.pod("a-1", "a", "d4", &json!({}));
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "1 to f 1 in r0");
}

/// kubernetes-sigs/kueue#6913: the replacement of a node of a slice led to an empty assignment.
#[test]
fn a_pod_of_a_slice_goes_back_to_its_slice() {
    let mut world = racks(&[2, 2]);
    let asked = [(LEVEL, "nvlink"), (SIZE, "2")];
    world.gang("a", 4, "d4");
    world.annotate("a", &asked);
    world.release();
    assert!(world.bind(0).is_empty());
    // A node of the second slice goes, and its domain has no other.
    let node = world.nodes_of("a").pop().unwrap();
    world.delete("a-3");
    world.remove_node(&node);
    world.pod("a-3", "a", "d4", &json!({}));
    world.annotate("a", &asked);
    let found = world.told();
    assert!(found["a"].starts_with("FabricFull"), "{found:?}");
}

/// kubernetes-sigs/kueue#12344 (review): only the first lost node was replaced, so a pod without room
/// kept others from places that were free.
#[test]
fn a_pod_without_room_does_not_hold_back_pods_of_other_slices() {
    let mut world = racks(&[2, 3]);
    let asked = [(LEVEL, "nvlink"), (SIZE, "2")];
    world.gang("a", 4, "d4");
    world.annotate("a", &asked);
    world.release();
    assert!(world.bind(0).is_empty());
    // A node of each slice dies. The domain of the first has no other.
    for domain in ["f-r0", "f-r1"] {
        let (node, pod) = of_domain(&world, domain);
        world.delete(&pod);
        world.remove_node(&node);
        world.pod(&pod, "a", "d4", &json!({}));
    }
    world.annotate("a", &asked);
    assert_eq!(world.told()["a"], "1 to f 1 in r1, rest FabricFull");
}

/// A node of a domain with a pod of the gang, and the pod.
fn of_domain(world: &World, domain: &str) -> (String, String) {
    let pods = world.of("a").into_iter();
    let mut on_nodes =
        pods.filter_map(|pod| Some((world.pods[&pod].spec.as_ref()?.node_name.clone()?, pod)));
    on_nodes.find(|(node, _)| node.starts_with(domain)).unwrap()
}

/// ai-dynamo/grove#648: each part of a replica got a block of its own, although all of them were to share
/// one.
#[test]
fn pods_of_several_kinds_share_the_domain_of_their_group() {
    let mut world = racks(&[3, 3, 5]);
    world.sizes.insert("a".to_owned(), Size { pods: 5, at_once: true });
    for (pod, cpu) in [("a-0", "1"), ("a-1", "1"), ("a-2", "1"), ("a-3", "4"), ("a-4", "4")] {
        let resources = json!({"requests": {"cpu": cpu}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        world.pod(pod, "a", "d4", &spec);
    }
    world.annotate("a", &[(LEVEL, "nvlink")]);
    assert_eq!(world.told()["a"], "5 to f 5 in r2");
    // A second replica is a group of its own, and has no room.
    world.sizes.insert("b".to_owned(), Size { pods: 4, at_once: true });
    (0..4).for_each(|index| world.pod(&format!("b-{index}"), "b", "d4", &json!({})));
    world.annotate("b", &[(LEVEL, "nvlink")]);
    let found = world.told();
    assert!(found["b"].starts_with("NoRoom") || found["b"].starts_with("Settling"), "{found:?}");
}

/// volcano-sh/volcano#5189: a partition that must be in one domain was divided where no domain had room
/// for it.
#[test]
fn a_slice_larger_than_every_domain_waits() {
    let mut world = racks(&[1, 1, 1]);
    world.gang("a", 2, "d4");
    world.annotate("a", &[(LEVEL, "nvlink"), (SIZE, "2")]);
    let found = world.told();
    assert!(found["a"].starts_with("TooLarge"), "{found:?}");
}
