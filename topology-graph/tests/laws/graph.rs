//! Properties of graphs and of their readers.

use proptest::prelude::*;
use topology_graph::fixture::plant;
use topology_graph::{
    Connection, Format, Hop, HostRoot, Level, NcclXml, Overlay, PathKind, Role, Route, Topology,
    from_json, json, nccl_xml,
};

use crate::machine::{build, devices, machine};

/// The path kind from the vertices on the route, as `nvidia-smi topo -m` defines it: switches
/// count, not links.
fn kind_of(route: &Route) -> PathKind {
    let between = route.hops.get(1..route.hops.len() - 1).unwrap_or_default();
    let count = |role| between.iter().filter(|hop| hop.role == role).count();
    match route.hops.last().and_then(|hop| hop.by) {
        None => return PathKind::Same,
        Some(Connection::NvLink { links }) => return PathKind::NvLink(links),
        Some(Connection::Xgmi { .. }) => return PathKind::Xgmi,
        Some(_) => {}
    }
    // A switch is entered by one link and left by another; its ports are parts of it.
    let is_entered = |hop: &&Hop| hop.by != Some(Connection::Attachment);
    let switches = between.iter().filter(is_entered).count();
    match (count(Role::NumaNode), count(Role::HostBridge)) {
        (2.., _) => PathKind::Sys,
        (1, _) => PathKind::Node,
        (0, 1..) => PathKind::Phb,
        (0, 0) if switches <= 1 => PathKind::Pix,
        (0, 0) => PathKind::Pxb,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn distance_is_symmetric_and_zero_on_the_diagonal_only(snapshot in machine(12)) {
        let topology = build(snapshot);
        for a in devices(&topology) {
            for b in devices(&topology) {
                prop_assert_eq!(topology.path(a, b), topology.path(b, a));
                prop_assert_eq!(topology.path(a, b) == PathKind::Same, a == b);
            }
        }
    }

    #[test]
    fn a_route_agrees_with_the_path_kind(snapshot in machine(12)) {
        let topology = build(snapshot);
        for a in devices(&topology) {
            for b in devices(&topology) {
                let path = topology.path(a, b);
                let Some(route) = topology.route(a, b) else {
                    prop_assert_eq!(path, PathKind::Unknown, "{} {}", a, b);
                    continue;
                };
                prop_assert_eq!(route.kind, path, "{} {}", a, b);
                prop_assert_eq!(kind_of(&route), path, "{} {}: {:?}", a, b, route);
                let places: Vec<_> = route.hops.iter().map(|hop| hop.place).collect();
                let mut back: Vec<_> =
                    topology.route(b, a).unwrap().hops.iter().map(|hop| hop.place).collect();
                back.reverse();
                prop_assert_eq!(places, back, "{} {}", a, b);
            }
        }
    }

    /// The known NUMA node of a device counts for that device alone.
    #[test]
    fn across_host_bridges_known_numa_nodes_decide(snapshot in machine(12)) {
        let topology = build(snapshot);
        let numa: Vec<_> = topology
            .gpus()
            .iter()
            .map(|gpu| (gpu.address, gpu.numa))
            .chain(topology.nics().iter().map(|nic| (nic.address, nic.numa)))
            .collect();
        for (a, a_numa) in &numa {
            for (b, b_numa) in &numa {
                let path = topology.path(*a, *b);
                if path.satisfies(PathKind::Phb) {
                    continue;
                }
                let expected = match (a_numa, b_numa) {
                    (Some(a), Some(b)) if a == b => PathKind::Node,
                    (Some(_), Some(_)) => PathKind::Sys,
                    _ => PathKind::Unknown,
                };
                prop_assert_eq!(path, expected, "{} {}", a, b);
            }
        }
    }

    #[test]
    fn below_one_host_bridge_is_a_partition(snapshot in machine(10)) {
        let topology = build(snapshot);
        let near = |a, b| topology.path(a, b).satisfies(PathKind::Phb);
        let numa = |address| {
            let gpu = topology.gpu(address).and_then(|gpu| gpu.numa);
            gpu.or_else(|| topology.nic(address).and_then(|nic| nic.numa))
        };
        // A device whose NUMA node is unknown may be near devices of two.
        let are_apart = |a, b| numa(a).zip(numa(b)).is_some_and(|(a, b)| a != b);
        let all = devices(&topology);
        for &a in &all {
            for &b in &all {
                for &c in all.iter().filter(|c| near(a, b) && near(b, **c)) {
                    prop_assert!(near(a, c) || are_apart(a, c), "{} {} {}", a, b, c);
                }
            }
        }
    }

    #[test]
    fn devices_of_a_cell_are_as_near_as_its_level(snapshot in machine(12)) {
        let topology = build(snapshot);
        let levels = [
            (Level::Switch, PathKind::Pix),
            (Level::RootPort, PathKind::Pxb),
            (Level::Root, PathKind::Phb),
        ];
        for (level, limit) in levels {
            let mut seen = Vec::new();
            for cell in topology.cells(level) {
                let members: Vec<_> = cell.gpus.into_iter().chain(cell.nics).collect();
                for a in &members {
                    prop_assert!(!seen.contains(a), "{} is in two cells", a);
                    for b in &members {
                        let path = topology.path(*a, *b);
                        prop_assert!(path.satisfies(limit), "{} {} {}", a, b, path);
                    }
                }
                seen.extend(members);
            }
        }
    }

    #[test]
    fn graphs_survive_kubernetes_and_json(snapshot in machine(12)) {
        let topology = build(snapshot);
        let spec = topology.to_spec();
        let back = Topology::from_spec(&spec).unwrap();
        prop_assert_eq!(back.to_spec(), spec);
        prop_assert_eq!(back.pairs(), topology.pairs());
        prop_assert_eq!(json(&from_json(&json(&topology)).unwrap()), json(&topology));
    }

    #[test]
    fn nccl_xml_has_each_device_with_a_numa_node_once(snapshot in machine(12)) {
        let topology = build(snapshot);
        let xml = NcclXml::parse(&nccl_xml(&topology)).unwrap();
        let (back, _) = Topology::from_overlay(&Overlay::from_nccl_xml(&xml));
        let known = |topology: &Topology| {
            let gpus = topology.gpus().iter().filter(|gpu| gpu.numa.is_some());
            let nics = topology.nics().iter().filter(|nic| nic.numa.is_some());
            gpus.map(|gpu| (gpu.address, gpu.numa))
                .chain(nics.map(|nic| (nic.address, nic.numa)))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(known(&back), known(&topology));
    }

    #[test]
    fn every_format_is_drawn_and_no_order_matters(snapshot in machine(12)) {
        let mut shuffled = snapshot.clone();
        shuffled.rdma.reverse();
        shuffled.gpus.reverse();
        let (a, b) = (build(snapshot), build(shuffled));
        for format in Format::ALL {
            prop_assert_eq!(format.render(&a), format.render(&b));
        }
    }

    #[test]
    fn any_text_gives_a_topology_file_or_an_error(text in "\\PC{0,80}|(<(cpu|pci|/cpu|system version=\"1\")>){0,9}") {
        drop(NcclXml::parse(&text));
        drop(from_json(&text));
    }

    #[test]
    fn any_text_gives_a_machine_or_an_error(text in "([a-z/.]{0,9}( = | -> | : char )?[0-9:.]{0,3}\n){0,9}") {
        let root = tempfile::tempdir().unwrap();
        drop(plant(&text, root.path()));
        drop(topology_graph::read(&HostRoot::at(root.path())));
    }

    #[test]
    fn any_bytes_give_an_archive_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600), head in 0..3_usize) {
        let head: &[u8] = [&b""[..], &[0x1f, 0x8b, 8, 0], b"BZh9"][head];
        drop(HostRoot::in_archive("bytes", &[head, &bytes].concat()));
    }
}
