//! Random machines: devices below few roots and switches, on two NUMA nodes, some with inconsistent
//! firmware data.

use proptest::prelude::*;
use topology_graph::{
    CpuSet, GpuFacts, LinkLayer, NumaNode, NumaNodeFacts, PciAddress, PciFunction, PcieRoot,
    RdmaDevice, RdmaPort, SNAPSHOT_VERSION, Snapshot, SocketFacts, Topology, XgmiLink,
};

/// A device: its root, the switches above it, its NUMA node and its role.
#[derive(Clone, Debug)]
struct Device {
    root: u8,
    /// Switch ports, one byte each; two devices with equal prefixes share bridges.
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

pub(crate) fn machine(devices: usize) -> impl Strategy<Value = Snapshot> {
    prop::collection::vec(device(), 0..devices).prop_map(|devices| snapshot(&devices))
}

fn snapshot(devices: &[Device]) -> Snapshot {
    let pci: Vec<PciFunction> =
        devices.iter().enumerate().map(|(index, device)| function(index, device)).collect();
    let rdma = devices.iter().zip(&pci).filter(|(device, _)| device.rdma && !device.gpu);
    Snapshot {
        version: SNAPSHOT_VERSION,
        numa_nodes: vec![node(0, "0-3"), node(1, "4-7")],
        sockets: [0, 1].map(socket).into(),
        xgmi: xgmi(devices, &pci),
        nvlinks: Vec::new(),
        nvme: Vec::new(),
        nccl_file: None,
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
        drm_card: None,
    })
    .collect()
}

fn socket(socket: u32) -> SocketFacts {
    let cpus = if socket == 0 { "0-3" } else { "4-7" };
    SocketFacts { socket, cpus: cpus.parse().expect("a list of CPUs") }
}

/// Links between every two GPUs below one host bridge, which are some GPUs but seldom all.
fn xgmi(devices: &[Device], pci: &[PciFunction]) -> Vec<XgmiLink> {
    let gpus: Vec<_> = devices.iter().zip(pci).filter(|(device, _)| device.gpu).collect();
    let mut links = Vec::new();
    for (index, (a, at)) in gpus.iter().enumerate() {
        for (b, to) in gpus.iter().skip(index + 1).filter(|(b, _)| a.root == b.root) {
            let hops = Some(u32::from(a.root) + 1).filter(|_| b.rdma);
            let ends = [at.address, to.address];
            links.push(XgmiLink {
                a: ends[0].min(ends[1]),
                b: ends[0].max(ends[1]),
                hops,
                bandwidth: hops.map(|hops| 64_000 / hops),
            });
        }
    }
    links
}

fn node(number: u32, cpus: &str) -> NumaNodeFacts {
    let distances = if number == 0 { vec![10, 21] } else { vec![21, 10] };
    let cpus: CpuSet = cpus.parse().expect("a list of CPUs");
    NumaNodeFacts { node: NumaNode(number), cpus, distances, memory_bytes: Some(1 << 34) }
}

fn rdma_device(address: PciAddress) -> RdmaDevice {
    let link_layer = Some(LinkLayer::Ethernet);
    let port = RdmaPort { number: 1, state: None, rate_megabits: None, link_layer, subnet: None };
    RdmaDevice {
        name: format!("mlx5_{address}"),
        pci: Some(address),
        part: None,
        node_guid: None,
        sys_image_guid: None,
        ports: vec![port],
        uverbs: Vec::new(),
        umad: Vec::new(),
        issm: Vec::new(),
    }
}

/// Bridges are numbered by their path, so that equal paths give equal bridges.
fn function(index: usize, device: &Device) -> PciFunction {
    let bridges = (1..=device.ports.len()).map(|depth| {
        let path = device.ports[..depth].iter().fold(1, |path, port| path << 1 | port);
        PciAddress::new(u32::from(device.root), path, 0, 0).expect("device 0 exists")
    });
    let bus = u8::try_from(100 + index).expect("few devices");
    let address = PciAddress::new(u32::from(device.root), bus, 0, 0).expect("device 0 exists");
    let root = PcieRoot::new(u32::from(device.root), 0);
    let function = function_at(address, root, bridges.collect(), device.gpu);
    PciFunction { numa_node: device.numa.map(NumaNode), ..function }
}

/// A GPU or NIC of which only the place is known.
pub(crate) fn function_at(
    address: PciAddress,
    root: PcieRoot,
    bridges: Vec<PciAddress>,
    gpu: bool,
) -> PciFunction {
    PciFunction {
        address,
        path: String::new(),
        root: Some(root),
        bridges,
        class: if gpu { 0x03_0200 } else { 0x02_0000 },
        vendor: if gpu { 0x10de } else { 0x15b3 },
        device: 1,
        subsystem_vendor: None,
        subsystem_device: None,
        driver: None,
        numa_node: None,
        local_cpus: None,
        physical_function: None,
        sriov_total_vfs: None,
        sriov_num_vfs: None,
        iommu_group: None,
        iommu_mode: None,
        acs: None,
        ats_enabled: None,
        vpd_v3: None,
        manages_switches: false,
        current_link: None,
        max_link: None,
    }
}

/// Two NUMA nodes in two sockets, without devices.
pub(crate) fn nodes_only() -> Snapshot {
    snapshot(&[])
}

pub(crate) fn build(mut snapshot: Snapshot) -> Topology {
    snapshot.pci.sort_by_key(|function| function.address);
    Topology::build(&snapshot, None).0
}

pub(crate) fn devices(topology: &Topology) -> Vec<PciAddress> {
    let gpus = topology.gpus().iter().map(|gpu| gpu.address);
    gpus.chain(topology.nics().iter().map(|nic| nic.address)).collect()
}
