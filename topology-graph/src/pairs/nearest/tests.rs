//! Every choice is compared with all others.

use super::*;
use crate::fixture::{machine, plant};
use crate::{HostRoot, NicRole, PathKind, read};
use proptest::prelude::*;
use std::fmt::Debug;
use std::sync::LazyLock;

/// Machines with different trees: pairs on switches, NICs shared by GPUs, several NUMA nodes per
/// socket, GPUs without a near NIC, and one whose NUMA nodes are not known.
const MACHINES: [&str; 9] = [
    "dgx-h100",
    "dgx-a100",
    "x86-two-per-switch",
    "x86-snc2",
    "epyc-nps4-sockets",
    "azure-gb300",
    "mi300x-8gpu",
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

/// The worth of a pair by its published path, as the documentation of `plan` says.
fn worth(topology: &Topology, gpu: PciAddress, nic: PciAddress) -> i64 {
    match topology.path(gpu, nic) {
        PathKind::Pix | PathKind::Same | PathKind::NvLink(_) | PathKind::Xgmi => 5,
        PathKind::Pxb => 4,
        PathKind::Phb => 3,
        PathKind::Node => 2,
        PathKind::Sys if topology.shares_socket(gpu, nic) => 1,
        PathKind::Sys | PathKind::Unknown => 0,
    }
}

fn is_within(topology: &Topology, level: Option<Level>, gpu: PciAddress, nic: PciAddress) -> bool {
    level.is_none_or(|level| {
        let mut cells = topology.cells_of_all(level).into_iter();
        cells.any(|cell| cell.gpus.contains(&gpu) && cell.nics.contains(&nic))
    })
}

/// The worth of every pair of one GPU and one NIC; `None` if it is too far.
type Worths = Vec<Vec<Option<i64>>>;

fn worths(topology: &Topology, request: &NearestRequest) -> Worths {
    let worth = |gpu: PciAddress, nic: PciAddress| {
        is_within(topology, request.within, gpu, nic).then(|| worth(topology, gpu, nic))
    };
    request
        .gpus
        .iter()
        .map(|gpu| request.nics.iter().map(|nic| worth(*gpu, *nic)).collect())
        .collect()
}

/// The greatest worth of all even assignments of exactly these NICs, by trying each one. `left` are
/// the NICs, or the GPUs if there are fewer NICs; `loads` what each of the others has so far.
fn most(worth: &Worths, nics: &[usize], from: usize, loads: &mut Vec<usize>) -> Option<i64> {
    let gpus = worth.len();
    let by_nic = nics.len() >= gpus;
    let (ones, others) = if by_nic { (nics.len(), gpus) } else { (gpus, nics.len()) };
    if from == ones {
        return loads.iter().all(|load| *load >= ones / others).then_some(0);
    }
    let mut best = None;
    for other in 0..others {
        if loads[other] == ones.div_ceil(others) {
            continue;
        }
        let pair = if by_nic { worth[other][nics[from]] } else { worth[from][nics[other]] };
        let Some(pair) = pair else { continue };
        loads[other] += 1;
        let rest = most(worth, nics, from + 1, loads);
        loads[other] -= 1;
        best = best.max(rest.map(|rest| rest + pair));
    }
    best
}

fn most_of(worth: &Worths, nics: &[usize]) -> Option<i64> {
    most(worth, nics, 0, &mut vec![0; nics.len().min(worth.len())])
}

fn subsets(of: usize, count: usize) -> Vec<Vec<usize>> {
    let all = (0..1_u32 << of).filter(|set| set.count_ones() as usize == count);
    all.map(|set| (0..of).filter(|index| set & (1 << index) != 0).collect()).collect()
}

fn some<T: Clone + Debug + 'static>(all: Vec<T>, most: usize) -> BoxedStrategy<Vec<T>> {
    let most = most.min(all.len());
    prop::sample::subsequence(all, 0..=most).boxed()
}

fn request() -> impl Strategy<Value = (usize, NearestRequest)> {
    (0..MACHINES.len()).prop_flat_map(|index| {
        let topology = &TOPOLOGIES[index];
        let within = prop::option::of(prop::sample::select(Level::ALL.to_vec()));
        let all = (some(gpus(topology), 4), some(nics(topology), 7), 0..5_usize, within);
        all.prop_map(move |(gpus, nics, count, within)| {
            let rest = self::gpus(topology).into_iter().filter(|gpu| !gpus.contains(gpu)).collect();
            (index, NearestRequest { gpus, nics, count, within, rest })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn no_other_choice_is_nearer((index, request) in request()) {
        let topology = &TOPOLOGIES[index];
        let chosen = topology.nearest(&request);
        if let Some(chosen) = &chosen {
            prop_assert_eq!(chosen.len(), request.count);
            prop_assert!(chosen.iter().all(|nic| request.nics.contains(nic)), "{chosen:?}");
        }
        if request.gpus.is_empty() || request.count == 0 || request.nics.len() < request.count {
            let is_enough = request.nics.len() >= request.count;
            prop_assert!(is_enough || chosen.is_none());
            return Ok(());
        }
        let worth = worths(topology, &request);
        let all = subsets(request.nics.len(), request.count);
        let best = all.iter().filter_map(|nics| most_of(&worth, nics)).max();
        let own = chosen.map(|chosen| {
            let index = |nic: &PciAddress| request.nics.iter().position(|it| it == nic).unwrap();
            let chosen: Vec<usize> = chosen.iter().map(index).collect();
            most_of(&worth, &chosen).unwrap()
        });
        prop_assert_eq!(own, best, "{} {:?}", MACHINES[index], request);
    }
}

fn named(topology: &Topology, names: &[&str]) -> Vec<PciAddress> {
    names.iter().map(|name| topology.device(name).unwrap()).collect()
}

/// The published matrix of a DGX H100 has GPU0 and NIC0 below one switch, GPU1 and NIC3, and so on.
#[test]
fn each_gpu_gets_the_nic_of_its_switch() {
    let topology = topology("x86-two-per-switch");
    let own = |gpus: &[&str], free: &[&str], count, within| {
        let (gpus, nics) = (named(&topology, gpus), named(&topology, free));
        topology.nearest(&NearestRequest { gpus, nics, count, within, rest: Vec::new() })
    };
    let all = ["NIC0", "NIC1", "NIC2", "NIC3"];
    let switch = Some(Level::Switch);
    assert_eq!(own(&["GPU2"], &all, 1, switch), Some(named(&topology, &["NIC2"])));
    assert_eq!(own(&["GPU2"], &["NIC0", "NIC1"], 1, switch), None, "another switch");
    assert_eq!(own(&["GPU2"], &["NIC0", "NIC1"], 1, None), Some(named(&topology, &["NIC0"])));
    assert_eq!(own(&["GPU0", "GPU2"], &all, 2, switch).map(|it| it.len()), Some(2));
    assert_eq!(own(&["GPU0"], &all, 5, None), None, "too few");
    assert_eq!(own(&["GPU0"], &all, 0, switch), Some(Vec::new()));
}

/// A NIC next to a GPU that another pod can still get is left to that pod.
#[test]
fn what_other_gpus_are_near_to_is_left_to_them() {
    let topology = topology("x86-two-per-switch");
    let (gpus, rest) = (named(&topology, &["GPU0"]), named(&topology, &["GPU2", "GPU3"]));
    let nics = named(&topology, &["NIC2", "NIC3"]);
    let far: Vec<_> = self::nics(&topology).into_iter().skip(4).collect();
    let nics: Vec<_> = nics.into_iter().chain(far.clone()).collect();
    let request = NearestRequest { gpus, nics, count: 1, within: None, rest };
    let chosen = topology.nearest(&request).unwrap();
    let path = |nic| topology.path(request.gpus[0], nic);
    assert!(far.is_empty() || path(chosen[0]) == path(request.nics[0]), "{chosen:?}");
}

#[test]
fn without_a_gpu_the_nics_are_near_each_other() {
    let topology = topology("x86-two-per-switch");
    let near = |free: &[&str], count, within| {
        let nics = named(&topology, free);
        topology.nearest(&NearestRequest { nics, count, within, ..NearestRequest::default() })
    };
    let (two, switch) = (named(&topology, &["NIC2", "NIC3"]), Some(Level::Switch));
    assert_eq!(near(&["NIC0", "NIC2", "NIC3"], 2, switch), Some(two.clone()));
    assert_eq!(near(&["NIC0", "NIC2", "NIC3"], 2, None), Some(two));
    assert_eq!(near(&["NIC0", "NIC2"], 2, switch), None);
    // The switch with one free NIC; the other one can still serve a pod that needs two.
    let one = named(&topology, &["NIC0"]);
    assert_eq!(near(&["NIC0", "NIC2", "NIC3"], 1, None), Some(one));
}
