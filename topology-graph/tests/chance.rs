//! The chance that a pod finds near NICs whose GPUs somebody else chooses: the count is compared with the
//! choice of NICs for each choice of GPUs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use std::sync::LazyLock;
use topology_graph::fixture::{machine, plant};
use topology_graph::{
    Chance, ChanceRequest, HostRoot, Level, NearestRequest, NicRole, PciAddress, Topology, read,
};

/// Pairs on switches, two GPUs and NICs per switch, several NUMA nodes per socket, NICs shared by GPUs,
/// GPUs without a near NIC, and a machine whose NUMA nodes are not known.
const MACHINES: [&str; 7] = [
    "dgx-h100",
    "x86-two-per-switch",
    "x86-snc2",
    "epyc-nps4-sockets",
    "azure-gb300",
    "a100-pcie-8gpu",
    "numa-unknown",
];

static TOPOLOGIES: LazyLock<Vec<Topology>> =
    LazyLock::new(|| MACHINES.iter().map(|name| topology(name)).collect());

fn topology(name: &str) -> Topology {
    let root = tempfile::tempdir().unwrap();
    plant(machine(name).unwrap(), root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
}

fn gpus(topology: &Topology) -> Vec<PciAddress> {
    topology.gpus().iter().map(|gpu| gpu.address).collect()
}

fn nics(topology: &Topology) -> Vec<PciAddress> {
    let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
    compute.map(|nic| nic.address).collect()
}

/// Counts by choosing NICs for every choice of GPUs.
fn counted(topology: &Topology, request: &ChanceRequest, within: Level) -> Chance {
    let gpus: Vec<PciAddress> = request.gpus.iter().copied().collect();
    let choices = (0..1_u32 << gpus.len())
        .filter(|choice| choice.count_ones() as usize == request.gpu_count)
        .map(|choice| {
            let chosen = gpus.iter().enumerate().filter(|(index, _)| choice >> index & 1 == 1);
            chosen.map(|(_, gpu)| *gpu).collect::<Vec<_>>()
        });
    let mut chance = Chance { served: 0, all: 0 };
    for gpus in choices {
        let nearest = topology.nearest(&NearestRequest {
            gpus,
            nics: request.nics.iter().copied().collect(),
            count: request.nic_count,
            within: Some(within),
            rest: Vec::new(),
        });
        chance.all += 1;
        chance.served += u128::from(nearest.is_some());
    }
    chance
}

fn request() -> impl Strategy<Value = (usize, ChanceRequest, Level)> {
    (0..MACHINES.len()).prop_flat_map(|index| {
        let topology = &TOPOLOGIES[index];
        let (gpus, nics) = (gpus(topology), nics(topology));
        let (most_gpus, most_nics) = (gpus.len(), nics.len());
        let some = (
            prop::sample::subsequence(gpus, 0..=most_gpus),
            prop::sample::subsequence(nics, 0..=most_nics),
            (1..5_usize, 1..7_usize),
            prop::sample::select(Level::ALL.to_vec()),
        );
        some.prop_map(move |(gpus, nics, (gpu_count, nic_count), within)| {
            let (gpus, nics) = (gpus.into_iter().collect(), nics.into_iter().collect());
            (index, ChanceRequest { gpus, gpu_count, nics, nic_count }, within)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_chance_is_the_share_of_choices_with_near_nics((index, request, within) in request()) {
        let topology = &TOPOLOGIES[index];
        let expected = counted(topology, &request, within);
        prop_assert_eq!(
            topology.chance(&request, within), expected,
            "{} {} {:?}", MACHINES[index], within, request
        );
    }
}

#[test]
fn parts_are_rounded_up() {
    let missed = |served, all| Chance { served, all }.missed(8);
    assert_eq!((missed(70, 70), missed(69, 70), missed(1, 70), missed(0, 70)), (0, 1, 8, 8));
    assert_eq!(missed(35, 70), 4);
    assert_eq!(missed(0, 0), 8, "too few GPUs");
}
