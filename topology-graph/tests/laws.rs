//! What holds of every machine, however strange: laws over generated snapshots
//! and over any text.

use proptest::prelude::*;
use topology_graph::fixture::plant;
use topology_graph::{
    CpuSet, Format, GpuFacts, HostRoot, Level, LinkLayer, NcclXml, NumaNode, NumaNodeFacts,
    Overlay, Pair, PathKind, PciAddress, PciFunction, PcieRoot, RdmaDevice, RdmaPort,
    SNAPSHOT_VERSION, Snapshot, Topology, from_json, json, nccl_xml,
};

/// One device: its root, the switches down to it, its NUMA node, what it is.
#[derive(Clone, Debug)]
struct Device {
    root: u8,
    /// Ports of switches, one byte each; two devices with equal heads share bridges.
    ports: Vec<u8>,
    numa: Option<u32>,
    gpu: bool,
    rdma: bool,
}

fn device() -> impl Strategy<Value = Device> {
    let ports = prop::collection::vec(0..2_u8, 0..4);
    let numa = prop_oneof![3 => (0..2_u32).prop_map(Some), 1 => Just(None), 1 => Just(Some(7))];
    (0..3_u8, ports, numa, any::<bool>(), prop::bool::weighted(0.8))
        .prop_map(|(root, ports, numa, gpu, rdma)| Device { root, ports, numa, gpu, rdma })
}

fn machine(devices: usize) -> impl Strategy<Value = Snapshot> {
    prop::collection::vec(device(), 0..devices).prop_map(|devices| snapshot(&devices))
}

fn snapshot(devices: &[Device]) -> Snapshot {
    let pci: Vec<PciFunction> =
        devices.iter().enumerate().map(|(index, device)| function(index, device)).collect();
    let rdma = devices.iter().zip(&pci).filter(|(device, _)| device.rdma && !device.gpu);
    Snapshot {
        version: SNAPSHOT_VERSION,
        numa_nodes: vec![node(0, "0-3"), node(1, "4-7")],
        gpus: gpus(devices, &pci),
        nvidia_peer_memory: None,
        rdma: rdma.map(|(_, function)| rdma_device(function.address)).collect(),
        netdevs: Vec::new(),
        anomalies: Vec::new(),
        pci,
    }
}

fn gpus(devices: &[Device], pci: &[PciFunction]) -> Vec<GpuFacts> {
    let gpus = devices.iter().zip(pci).filter(|(device, _)| device.gpu);
    gpus.map(|(_, function)| GpuFacts {
        address: function.address,
        uuid: Some(format!("GPU-{}", function.address)),
        model: None,
    })
    .collect()
}

fn node(number: u32, cpus: &str) -> NumaNodeFacts {
    let distances = if number == 0 { vec![10, 21] } else { vec![21, 10] };
    let cpus: CpuSet = cpus.parse().expect("a list of CPUs");
    NumaNodeFacts { node: NumaNode(number), cpus, distances, socket: Some(number) }
}

fn rdma_device(address: PciAddress) -> RdmaDevice {
    let link_layer = Some(LinkLayer::Ethernet);
    let port = RdmaPort { number: 1, state: None, rate_megabits: None, link_layer };
    RdmaDevice {
        name: format!("mlx5_{address}"),
        pci: Some(address),
        node_guid: None,
        sys_image_guid: None,
        ports: vec![port],
        uverbs: Vec::new(),
        umad: Vec::new(),
        issm: Vec::new(),
    }
}

/// Bridges are numbered by the path to them, so that equal paths are equal bridges.
fn function(index: usize, device: &Device) -> PciFunction {
    let bridges = (1..=device.ports.len()).map(|depth| {
        let path = device.ports[..depth].iter().fold(1, |path, port| path << 1 | port);
        PciAddress::new(u32::from(device.root), path, 0, 0).expect("device 0 exists")
    });
    let bus = u8::try_from(100 + index).expect("few devices");
    PciFunction {
        address: PciAddress::new(u32::from(device.root), bus, 0, 0).expect("device 0 exists"),
        path: String::new(),
        root: Some(PcieRoot::new(u32::from(device.root), 0)),
        bridges: bridges.collect(),
        class: if device.gpu { 0x03_0200 } else { 0x02_0000 },
        vendor: if device.gpu { 0x10de } else { 0x15b3 },
        device: 1,
        subsystem_vendor: None,
        subsystem_device: None,
        driver: None,
        numa_node: device.numa.map(NumaNode),
        local_cpus: None,
        physical_function: None,
        sriov_total_vfs: None,
        sriov_num_vfs: None,
        iommu_group: None,
        iommu_mode: None,
        acs: None,
        ats_enabled: None,
        vpd_v3: None,
        current_link: None,
        max_link: None,
    }
}

fn build(mut snapshot: Snapshot) -> Topology {
    snapshot.pci.sort_by_key(|function| function.address);
    Topology::build(&snapshot, None).0
}

fn devices(topology: &Topology) -> Vec<PciAddress> {
    let gpus = topology.gpus().iter().map(|gpu| gpu.address);
    gpus.chain(topology.nics().iter().map(|nic| nic.address)).collect()
}

/// How many GPUs have a first NIC, a second and so on, and how near all are.
fn worth(pairs: &[Pair], gpus: &[PciAddress], per_gpu: usize) -> (Vec<usize>, usize) {
    let count = |gpu: &PciAddress| pairs.iter().filter(|pair| pair.gpu == *gpu).count();
    let rounds = (1..=per_gpu).map(|round| gpus.iter().filter(|gpu| count(gpu) >= round).count());
    (rounds.collect(), pairs.iter().map(|pair| nearness(pair.path)).sum())
}

fn nearness(path: PathKind) -> usize {
    let far = [PathKind::Node, PathKind::Phb, PathKind::Pxb, PathKind::Pix];
    far.iter().position(|known| *known == path).map_or(0, |steps| steps + 1)
}

/// The best worth of all plans: each NIC with one of the GPUs, or with none.
fn brute_force(
    topology: &Topology,
    gpus: &[PciAddress],
    nics: &[PciAddress],
    per_gpu: usize,
    chosen: &mut Vec<Pair>,
) -> (Vec<usize>, usize) {
    let [nic, rest @ ..] = nics else { return worth(chosen, gpus, per_gpu) };
    let mut best = brute_force(topology, gpus, rest, per_gpu, chosen);
    for &gpu in gpus {
        let path = topology.path(gpu, *nic);
        let room = chosen.iter().filter(|pair| pair.gpu == gpu).count() < per_gpu;
        if room && path.satisfies(PathKind::Node) {
            chosen.push(Pair { gpu, nic: *nic, path });
            best = best.max(brute_force(topology, gpus, rest, per_gpu, chosen));
            chosen.pop();
        }
    }
    best
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn the_plan_is_as_good_as_the_best(snapshot in machine(8), per_gpu in 1..3_usize) {
        let topology = build(snapshot);
        let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let nics: Vec<_> = topology.nics().iter().map(|nic| nic.address).collect();
        let plan = topology.plan(&gpus, &nics, per_gpu);
        let best = brute_force(&topology, &gpus, &nics, per_gpu, &mut Vec::new());
        prop_assert_eq!(worth(&plan, &gpus, per_gpu), best);
    }
}
