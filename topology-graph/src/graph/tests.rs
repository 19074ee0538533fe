use super::*;
use crate::PathKind;

/// Parses lines `place parent [numa]`; a place is `pci0000:00` or an address. `sw` makes a vertex a
/// whole switch; a number or `-1` (unknown) makes it a device.
fn parts(text: &str) -> Parts {
    let branches = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = place(words[0]);
        let role = match words.get(2) {
            Some(&"sw") => Role::Switch,
            Some(_) => Role::Gpu,
            None if matches!(place, Place::Root(_)) => Role::HostBridge,
            None => Role::SwitchPort,
        };
        let numa = words.get(2).and_then(|numa| numa.parse().ok()).map(NumaNode);
        let parent = (words[1] != "-").then(|| self::place(words[1]));
        Branch { vertex: Vertex { numa, ..Vertex::new(place, role) }, parent, data_path: None }
    });
    let numa = [0, 1].map(|node| NumaPart {
        node: NumaNode(node),
        cpus: crate::CpuSet::default(),
        distances: if node == 0 { vec![10, 21] } else { vec![22, 10] },
        socket: Some(node),
        evidence: crate::Evidence::Sysfs,
    });
    Parts {
        branches: branches.collect(),
        numa: numa.into(),
        sockets: [0, 1]
            .map(|socket| SocketPart {
                socket,
                cpus: crate::CpuSet::default(),
                evidence: crate::Evidence::Sysfs,
            })
            .into(),
        gpu_links: Vec::new(),
    }
}

fn graph(text: &str) -> Graph {
    let (graph, errors) = Graph::new(&parts(text));
    assert_eq!(errors, []);
    graph
}

fn place(text: &str) -> Place {
    text.parse().map_or_else(|_| Place::Function(text.parse().unwrap()), Place::Root)
}

fn path(graph: &Graph, a: &str, b: &str) -> PathKind {
    let way = graph.way(place(a), place(b)).map_or(PathKind::Unknown, |(kind, _)| kind);
    let distance = graph.distance(a.parse().unwrap(), b.parse().unwrap());
    assert_eq!(distance.map_or(PathKind::Unknown, Distance::kind), way, "{a} {b}");
    way
}

/// Two nested switches below a root port, an integrated device, and other host bridges.
const NESTED: &str = "pci0000:00 -\n\
     0000:00:01.0 pci0000:00\n\
     0000:01:00.0 0000:00:01.0\n\
     0000:02:00.0 0000:01:00.0\n\
     0000:02:01.0 0000:01:00.0\n\
     0000:03:00.0 0000:02:00.0 0\n\
     0000:03:00.1 0000:02:00.0 0\n\
     0000:04:00.0 0000:02:01.0 0\n\
     0000:02:02.0 0000:01:00.0\n\
     0000:05:00.0 0000:02:02.0\n\
     0000:06:00.0 0000:05:00.0\n\
     0000:07:00.0 0000:06:00.0 0\n\
     0000:00:02.0 pci0000:00 0\n\
     pci0000:80 -\n\
     0000:80:01.0 pci0000:80 0\n\
     0000:80:02.0 pci0000:80 -1\n\
     0000:80:03.0 - 1\n\
     0000:80:04.0 - -1";

#[test]
fn the_shortest_path_decides() {
    let graph = graph(NESTED);
    for (a, b, expected) in [
        ("0000:03:00.0", "0000:03:00.0", PathKind::Same),
        ("0000:03:00.0", "0000:03:00.1", PathKind::Pix),
        ("0000:03:00.0", "0000:04:00.0", PathKind::Pix),
        ("0000:03:00.0", "0000:07:00.0", PathKind::Pxb),
        ("0000:03:00.0", "0000:00:02.0", PathKind::Phb),
        ("0000:03:00.0", "0000:80:01.0", PathKind::Node),
        ("0000:80:02.0", "0000:80:01.0", PathKind::Phb),
        ("0000:03:00.0", "0000:80:02.0", PathKind::Unknown),
        ("0000:80:02.0", "0000:80:04.0", PathKind::Unknown),
        ("0000:80:03.0", "0000:80:01.0", PathKind::Sys),
    ] {
        assert_eq!(path(&graph, a, b), expected, "{a} {b}");
        assert_eq!(path(&graph, b, a), expected, "{b} {a}");
    }
}

#[test]
fn ports_are_of_the_root_or_of_a_switch() {
    let graph = graph(NESTED);
    for (at, role, switch) in [
        ("0000:00:01.0", Role::RootPort, None),
        ("0000:01:00.0", Role::SwitchPort, None),
        ("0000:02:02.0", Role::SwitchPort, Some("0000:01:00.0")),
        ("0000:05:00.0", Role::SwitchPort, Some("0000:01:00.0")),
        ("0000:03:00.0", Role::Gpu, Some("0000:01:00.0")),
        ("0000:07:00.0", Role::Gpu, Some("0000:05:00.0")),
        ("0000:00:02.0", Role::Gpu, None),
    ] {
        assert_eq!(graph.vertex(place(at)).unwrap().role, role, "{at}");
        let above = graph.switch_above(place(at)).map(|vertex| vertex.place);
        assert_eq!(above, switch.map(place), "{at}");
    }
}

#[test]
fn a_whole_switch_is_one_vertex() {
    let graph = graph(
        "ffff:ff:01.0 - sw\n\
         ffff:ff:02.0 ffff:ff:01.0 sw\n\
         0001:00:00.0 ffff:ff:02.0 0\n\
         0002:00:00.0 ffff:ff:02.0 0\n\
         0003:00:00.0 ffff:ff:01.0 0",
    );
    assert_eq!(path(&graph, "0001:00:00.0", "0002:00:00.0"), PathKind::Pix);
    assert_eq!(path(&graph, "0001:00:00.0", "0003:00:00.0"), PathKind::Pxb);
}

/// The NUMA node of a device holds for that device alone, not for others below its host bridge.
#[test]
fn a_numa_node_applies_to_a_bridge_only_if_all_devices_have_it() {
    let graph = graph(
        "pci0000:00 -\n\
         0000:00:01.0 pci0000:00 0\n\
         0000:00:02.0 pci0000:00 1\n\
         0000:00:03.0 pci0000:00 -1\n\
         pci0000:80 -\n\
         0000:80:01.0 pci0000:80 0\n\
         0000:80:02.0 pci0000:80 0",
    );
    for (a, expected) in [
        ("0000:00:01.0", PathKind::Node),
        ("0000:00:02.0", PathKind::Sys),
        ("0000:00:03.0", PathKind::Unknown),
    ] {
        assert_eq!(path(&graph, a, "0000:80:01.0"), expected, "{a}");
        assert_eq!(path(&graph, "0000:80:01.0", a), expected, "{a}");
    }
    // On one root bus too, different known nodes are apart; an unknown one is not.
    assert_eq!(path(&graph, "0000:00:02.0", "0000:00:01.0"), PathKind::Sys);
    assert_eq!(path(&graph, "0000:00:03.0", "0000:00:01.0"), PathKind::Phb);
    let (_, steps) = graph.way(place("0000:80:01.0"), place("0000:00:02.0")).unwrap();
    let places: Vec<_> = steps.iter().map(|step| step.to.place.to_string()).collect();
    assert_eq!(places, ["pci0000:80", "numa0", "numa1", "0000:00:02.0"]);
}

#[test]
fn the_slit_is_on_the_edges() {
    let graph = graph("pci0000:00 -");
    assert_eq!(graph.slit(NumaNode(0)), [10, 21]);
    assert_eq!(graph.slit(NumaNode(1)), [22, 10]);
    assert_eq!(graph.socket_of(NumaNode(1)), Some(1));
}

#[test]
fn vertices_outside_a_forest_are_reported() {
    for (text, expected) in [
        (
            "0000:01:00.0 0000:02:00.0\n0000:02:00.0 0000:01:00.0",
            "vertex `0000:02:00.0` is its own ancestor",
        ),
        ("0000:01:00.0 0000:01:00.0", "vertex `0000:01:00.0` is its own ancestor"),
        ("0000:01:00.0 -\n0000:01:00.0 -", "duplicate vertex `0000:01:00.0`"),
        (
            "0000:01:00.0 pci0000:00",
            "the parent `pci0000:00` of vertex `0000:01:00.0` does not exist",
        ),
    ] {
        let (_, errors) = Graph::new(&parts(text));
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}
