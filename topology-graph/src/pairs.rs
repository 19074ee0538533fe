//! Which NIC goes with which GPU: the pair plan of a machine or of a part of it.
//!
//! Not the nearest NIC for each GPU by itself, which gives two GPUs of a switch
//! the same NIC, but the best plan for all: as many GPUs as possible get a NIC,
//! then as many as possible a second one and so on; among those plans the one of
//! the shortest paths; among those the one in the order of addresses.

mod assignment;

use crate::shape::{Role, Vertex};
use crate::{LinkLayer, PathKind, PciAddress, Topology};
use assignment::assign;

/// A GPU, a NIC, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The GPU.
    pub gpu: PciAddress,
    /// The NIC.
    pub nic: PciAddress,
    /// The path between them, `NODE` or nearer.
    pub path: PathKind,
}

// Three wishes in one number, each wider than all of the next together for up to
// 600 devices.
/// One NIC more for a GPU that has fewer than others.
const ROUND: i64 = 1 << 42;
/// One step nearer for one pair.
const STEP: i64 = 1 << 28;

impl Topology {
    /// The plan of the whole machine, by GPU and NIC: every NIC that is for GPUs with
    /// one GPU, the GPUs with equally many. Of a GPU's NICs none is farther than
    /// another: a NIC for storage or management is not made its partner by being left.
    pub fn pairs(&self) -> Vec<Pair> {
        let all: Vec<PciAddress> = self.gpus().iter().map(|gpu| gpu.address).collect();
        let nics = self.pairable_nics();
        let per_gpu = nics.len().div_ceil(all.len().max(1));
        let plan = self.plan(&all, &nics, per_gpu);
        let nearest = |gpu| plan.iter().filter(|pair| pair.gpu == gpu).map(|pair| pair.path).min();
        plan.iter().filter(|pair| Some(pair.path) == nearest(pair.gpu)).copied().collect()
    }

    /// The best plan for these GPUs and NICs with at most `per_gpu` NICs for each
    /// GPU, by GPU and NIC. A NIC serves one GPU, and only from its NUMA node.
    pub fn plan(&self, gpus: &[PciAddress], nics: &[PciAddress], per_gpu: usize) -> Vec<Pair> {
        let (gpus, nics) = (sorted(gpus), sorted(nics));
        let per_gpu = per_gpu.min(nics.len());
        let seats: Vec<Seat> = gpus.iter().flat_map(|&gpu| seats(gpu, per_gpu)).collect();
        let gains: Vec<Vec<i64>> = (0..nics.len())
            .map(|nic| (0..seats.len()).map(|seat| self.gain(&seats, seat, &nics, nic)).collect())
            .collect();
        let mut pairs: Vec<Pair> = assign(&gains)
            .into_iter()
            .filter(|&(nic, seat)| gains[nic][seat] > 0)
            .map(|(nic, seat)| self.pair(seats[seat].gpu, nics[nic]))
            .collect();
        pairs.sort_unstable_by_key(|pair| (pair.gpu, pair.nic));
        pairs
    }

    /// The NICs that the plan of the whole machine is made for: those with InfiniBand,
    /// else with RDMA, else all. Where there is InfiniBand, Ethernet with RDMA is the
    /// way to storage and management (`BlueField`, MANA).
    fn pairable_nics(&self) -> Vec<PciAddress> {
        let nics = |wanted: &dyn Fn(&Vertex) -> bool| -> Vec<PciAddress> {
            let nics = self.shape.devices().filter(|(_, vertex)| vertex.role == Role::Nic);
            nics.filter(|(_, vertex)| wanted(vertex)).map(|(address, _)| address).collect()
        };
        let infiniband = nics(&|vertex| vertex.link_layer == Some(LinkLayer::InfiniBand));
        let rdma = nics(&|vertex| vertex.rdma);
        let all = nics(&|_| true);
        [infiniband, rdma, all].into_iter().find(|nics| !nics.is_empty()).unwrap_or_default()
    }

    fn pair(&self, gpu: PciAddress, nic: PciAddress) -> Pair {
        Pair { gpu, nic, path: self.path(gpu, nic) }
    }

    /// What it is worth to put this NIC on this seat; 0 where it is no partner.
    fn gain(&self, seats: &[Seat], seat: usize, nics: &[PciAddress], nic: usize) -> i64 {
        let Seat { gpu, worth } = seats[seat];
        let path = self.path(gpu, nics[nic]);
        if !path.satisfies(PathKind::Node) {
            return 0;
        }
        // Convex, so that among equal plans the one without crossings is the best.
        let crossing = i64::try_from(seat.abs_diff(nic).pow(2)).unwrap_or(STEP).min(STEP);
        worth + STEP * nearness(path) - crossing
    }
}

/// Room for one NIC at a GPU; the first of a GPU is worth the most.
#[derive(Clone, Copy, Debug)]
struct Seat {
    gpu: PciAddress,
    worth: i64,
}

fn seats(gpu: PciAddress, per_gpu: usize) -> impl Iterator<Item = Seat> {
    let rounds_left = (1..=per_gpu).rev().map(|left| i64::try_from(left).unwrap_or(1));
    rounds_left.map(move |left| Seat { gpu, worth: ROUND * left })
}

/// Steps from the farthest path of a pair.
fn nearness(path: PathKind) -> i64 {
    match path {
        PathKind::Pix | PathKind::Same | PathKind::NvLink(_) => 4,
        PathKind::Pxb => 3,
        PathKind::Phb => 2,
        PathKind::Node => 1,
        PathKind::Sys | PathKind::Unknown => 0,
    }
}

fn sorted(addresses: &[PciAddress]) -> Vec<PciAddress> {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}
