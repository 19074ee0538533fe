//! Random PCIe trees, with path kinds computed from the tree by the definitions of
//! `nvidia-smi topo -m`: devices, slots, switches, root ports, host bridges, NUMA nodes.

use proptest::prelude::*;
use topology_graph::{NumaNode, PciAddress, PciFunction, PcieRoot, Snapshot, Topology};

use crate::machine::{build, function_at, nodes_only};

/// What is below a link.
#[derive(Clone, Debug)]
enum Below {
    /// A device with this number of functions.
    Device(u8),
    /// A switch, with what is below each of its downstream ports.
    Switch(Vec<Self>),
}

/// A host bridge: its NUMA node, if firmware gives one, and its root ports.
#[derive(Clone, Debug)]
struct HostBridge {
    node: Option<u32>,
    ports: Vec<Below>,
}

fn below() -> impl Strategy<Value = Below> {
    let device = prop_oneof![3 => Just(1_u8), 1 => 2..5_u8].prop_map(Below::Device);
    device.prop_recursive(3, 12, 3, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(Below::Switch)
    })
}

fn machine() -> impl Strategy<Value = Vec<HostBridge>> {
    let node = prop_oneof![6 => (0..2_u32).prop_map(Some), 1 => Just(None)];
    let bridge = (node, prop::collection::vec(below(), 1..3))
        .prop_map(|(node, ports)| HostBridge { node, ports });
    prop::collection::vec(bridge, 1..5)
}

/// The position of a function, from the top.
#[derive(Clone, Debug)]
struct Spot {
    address: PciAddress,
    node: Option<u32>,
    host_bridge: usize,
    root_port: usize,
    /// The switches from the root port to the device, each as its path of downstream ports.
    switches: Vec<Vec<usize>>,
    /// The path of downstream ports to the device; functions of one device share it.
    slot: Vec<usize>,
}

/// The path kind by definition.
fn word(a: &Spot, b: &Spot) -> &'static str {
    if a.address == b.address {
        return "X";
    }
    if a.host_bridge != b.host_bridge {
        return match (a.node, b.node) {
            (Some(a), Some(b)) if a == b => "NODE",
            (Some(_), Some(_)) => "SYS",
            _ => "?",
        };
    }
    if a.root_port != b.root_port {
        return "PHB";
    }
    if a.slot == b.slot {
        return "PIX";
    }
    // The switches that a packet passes: each device's own, and the last common one.
    let common = a.switches.iter().zip(&b.switches).take_while(|(a, b)| a == b).count();
    let passed = a.switches.len() - common + b.switches.len() - common + 1;
    if passed == 1 { "PIX" } else { "PXB" }
}

/// Numbers buses depth first, as firmware does, and lists the functions.
struct Numbering {
    domain: u32,
    next_bus: u8,
    spots: Vec<Spot>,
    functions: Vec<PciFunction>,
}

impl Numbering {
    fn address(&self, bus: u8, device: usize, function: u8) -> PciAddress {
        let device = u8::try_from(device).expect("few ports");
        PciAddress::new(self.domain, bus, device, function).expect("a valid address")
    }

    fn bus(&mut self) -> u8 {
        self.next_bus += 1;
        self.next_bus
    }

    /// `bridges` are the ports above, starting at the root.
    fn place(&mut self, below: &Below, bridges: &[PciAddress], spot: &Spot) {
        let bus = self.bus();
        match below {
            Below::Device(functions) => {
                for function in 0..*functions {
                    let address = self.address(bus, 0, function);
                    // Every second device is a GPU.
                    let gpu = bus.is_multiple_of(2) && *functions == 1;
                    let root = PcieRoot::new(self.domain, 0);
                    let made = function_at(address, root, bridges.to_vec(), gpu);
                    let numa_node = spot.node.map(NumaNode);
                    self.functions.push(PciFunction { numa_node, ..made });
                    self.spots.push(Spot { address, ..spot.clone() });
                }
            }
            Below::Switch(ports) => {
                let upstream = self.address(bus, 0, 0);
                let inner = self.bus();
                for (port, below) in ports.iter().enumerate() {
                    let downstream = self.address(inner, port, 0);
                    let mut spot = spot.clone();
                    spot.switches.push(spot.slot.clone());
                    spot.slot.push(port);
                    self.place(below, &[bridges, &[upstream, downstream]].concat(), &spot);
                }
            }
        }
    }
}

fn numbered(machine: &[HostBridge]) -> (Vec<Spot>, Vec<PciFunction>) {
    let (mut spots, mut functions) = (Vec::new(), Vec::new());
    for (host_bridge, bridge) in machine.iter().enumerate() {
        let domain = u32::try_from(host_bridge).expect("few bridges");
        let mut numbering =
            Numbering { domain, next_bus: 0, spots: Vec::new(), functions: Vec::new() };
        for (root_port, below) in bridge.ports.iter().enumerate() {
            let port = numbering.address(0, root_port + 1, 0);
            let spot = Spot {
                address: port,
                node: bridge.node,
                host_bridge,
                root_port,
                switches: Vec::new(),
                slot: Vec::new(),
            };
            numbering.place(below, &[port], &spot);
        }
        spots.extend(numbering.spots);
        functions.extend(numbering.functions);
    }
    (spots, functions)
}

fn topology(functions: Vec<PciFunction>) -> Topology {
    build(Snapshot { pci: functions, ..nodes_only() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn every_path_kind_follows_its_definition(machine in machine()) {
        let (spots, functions) = numbered(&machine);
        let topology = topology(functions);
        for a in &spots {
            for b in &spots {
                let found = topology.path(a.address, b.address).to_string();
                prop_assert_eq!(&found, word(a, b), "{} {}", a.address, b.address);
            }
        }
    }
}

/// Path kinds worked out by hand, to check the definitions above.
#[test]
fn path_kinds_of_one_tree() {
    let device = || Below::Device(1);
    let cascade = Below::Switch(vec![device(), device(), Below::Switch(vec![device()])]);
    let machine = [
        HostBridge { node: Some(0), ports: vec![cascade, Below::Device(2)] },
        HostBridge { node: Some(0), ports: vec![device()] },
        HostBridge { node: Some(1), ports: vec![device()] },
        HostBridge { node: None, ports: vec![device()] },
    ];
    let (spots, _) = numbered(&machine);
    let words = |from: usize| spots.iter().map(|to| word(&spots[from], to)).collect::<Vec<_>>();
    assert_eq!(words(0), ["X", "PIX", "PXB", "PHB", "PHB", "NODE", "SYS", "?"]);
    assert_eq!(words(3), ["PHB", "PHB", "PHB", "X", "PIX", "NODE", "SYS", "?"]);
}
