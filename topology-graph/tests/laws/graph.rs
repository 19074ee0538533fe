//! Laws of graphs and of what reads them.

use proptest::prelude::*;
use topology_graph::fixture::plant;
use topology_graph::{
    Format, HostRoot, Level, NcclXml, Overlay, PathKind, Topology, from_json, json, nccl_xml,
};

use crate::machine::{build, devices, machine};

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
    fn below_one_host_bridge_is_a_partition(snapshot in machine(10)) {
        let topology = build(snapshot);
        let near = |a, b| topology.path(a, b).satisfies(PathKind::Phb);
        let all = devices(&topology);
        for &a in &all {
            for &b in &all {
                for &c in all.iter().filter(|c| near(a, b) && near(b, **c)) {
                    prop_assert!(near(a, c), "{} {} {}", a, b, c);
                }
            }
        }
    }

    #[test]
    fn devices_of_a_cell_are_as_near_as_its_level(snapshot in machine(12)) {
        let topology = build(snapshot);
        for (level, limit) in [(Level::Switch, PathKind::Pix), (Level::Root, PathKind::Phb)] {
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
    fn nccl_is_told_of_every_device_with_a_node_once(snapshot in machine(12)) {
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
    fn any_text_is_a_topology_file_or_an_error(text in "\\PC{0,80}|(<(cpu|pci|/cpu|system version=\"1\")>){0,9}") {
        drop(NcclXml::parse(&text));
        drop(from_json(&text));
    }

    #[test]
    fn any_text_is_a_machine_or_an_error(text in "([a-z/.]{0,9}( = | -> | : char )?[0-9:.]{0,3}\n){0,9}") {
        let root = tempfile::tempdir().unwrap();
        drop(plant(&text, root.path()));
        drop(topology_graph::read(&HostRoot::at(root.path())));
    }

    #[test]
    fn any_bytes_are_an_archive_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600), head in 0..3_usize) {
        let head: &[u8] = [&b""[..], &[0x1f, 0x8b, 8, 0], b"BZh9"][head];
        drop(HostRoot::in_archive("bytes", &[head, &bytes].concat()));
    }
}
