//! The pair plan of a machine or of a part of it: which NIC goes with which GPU.
//!
//! If there are fewer NICs than GPUs, GPUs share the NICs that are nearest to them. Otherwise, giving
//! each GPU its nearest NIC would give two GPUs of a switch the same NIC. The plan is the best one for
//! all GPUs: as many GPUs as possible get a NIC, then as many as possible a second
//! one, and so on. Among those plans, the paths are shortest. Among those, the plan for the
//! remaining free GPUs is best. Among those, address order decides.

mod chance;
mod matching;
mod nearest;

use crate::graph::{Distance, Place, Role};
use crate::{NicRole, PathKind, PciAddress, Topology};
pub use chance::{Chance, ChanceRequest, Served, binomial};
use matching::{Gain, Problem, best};
pub use nearest::NearestRequest;
use std::collections::BTreeMap;

/// A GPU, a NIC, and the path between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The GPU.
    pub gpu: PciAddress,
    /// The NIC.
    pub nic: PciAddress,
    /// The path between them: `NODE` or nearer, or `SYS` within one socket.
    pub path: PathKind,
}

/// The input of a plan: any free part of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// Groups of GPUs that share their NICs: each NIC of a group is near all of its GPUs. A single
    /// GPU is a group of one.
    pub groups: Vec<Vec<PciAddress>>,
    /// The available NICs.
    pub nics: Vec<PciAddress>,
    /// The maximum number of NICs per group.
    pub per_group: usize,
    /// Whether a NIC may serve several groups. It does if there are too few NICs; they are then
    /// shared as evenly as possible.
    pub shared: bool,
    /// GPUs that stay free; they decide between plans that are otherwise equal. Sharing a NIC does
    /// not take it from them, so they do not count with `shared`.
    pub rest: Vec<PciAddress>,
}

/// The GPUs that get NICs now, or those that stay free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Asked,
    Rest,
}

/// The NICs that a group may get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Those of its socket.
    Socket,
    /// Those nearest to it.
    Nearest,
}

/// How near a NIC is to a GPU; more is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    /// By the kind of path.
    steps: i64,
    /// Among paths of one kind.
    shortness: i64,
}

/// More PCIe links than any path has: buses end at 255.
const MOST_LINKS: i64 = 512;

/// GPUs that get NICs together.
struct Group<'r> {
    gpus: &'r [PciAddress],
    tier: Tier,
}

impl PlanRequest {
    /// A request for each GPU alone, with at most `per_gpu` of these NICs.
    pub fn each(gpus: &[PciAddress], nics: &[PciAddress], per_gpu: usize) -> Self {
        let groups = gpus.iter().map(|gpu| vec![*gpu]).collect();
        Self { groups, nics: nics.to_vec(), per_group: per_gpu, ..Self::default() }
    }

    /// The same request without duplicates and in address order.
    fn tidy(&self) -> Self {
        let mut seen = Vec::new();
        let mut groups: Vec<Vec<PciAddress>> =
            self.groups.iter().map(|group| unseen(group, &mut seen)).collect();
        groups.retain(|group| !group.is_empty());
        groups.sort_unstable();
        let rest = if self.shared { Vec::new() } else { unseen(&self.rest, &mut seen) };
        let nics = sorted(&self.nics);
        Self { groups, rest, per_group: self.per_group.min(nics.len()), nics, ..*self }
    }
}

impl Topology {
    /// The plan of the whole machine, by GPU and NIC. Every compute NIC gets one GPU, and all GPUs
    /// get equally many. All NICs of a GPU are equally near: a NIC does not become a partner only
    /// because no other NIC is available.
    ///
    /// If there are fewer NICs than GPUs, each GPU has one of the NICs that are nearest to it, and
    /// several GPUs share a NIC. NCCL chooses so too.
    ///
    /// Physical functions are paired, since one port is one NIC. A virtual function has the partner
    /// of its physical function.
    pub fn pairs(&self) -> Vec<Pair> {
        let all: Vec<PciAddress> = self.gpus().iter().map(|gpu| gpu.address).collect();
        let nics = self.pairable_nics();
        let plan = if nics.len() < all.len() {
            let request = PlanRequest { shared: true, ..PlanRequest::each(&all, &nics, 1) };
            self.plan_among(&request, Reach::Nearest)
        } else {
            let per_gpu = nics.len().div_ceil(all.len().max(1));
            self.plan(&PlanRequest::each(&all, &nics, per_gpu))
        };
        let near = plan.iter().copied().filter(|pair| {
            plan.iter().all(|other| other.gpu != pair.gpu || other.path >= pair.path)
        });
        let mut pairs: Vec<Pair> =
            near.flat_map(|pair| self.with_virtual_functions(pair)).collect();
        pairs.sort_unstable_by_key(|pair| (pair.gpu, pair.nic));
        pairs
    }

    /// The pairs by which a NIC has a GPU of its own. Where several GPUs share a NIC and some are
    /// strictly nearer to it than the others, it belongs to the nearer ones: a GPU whose own NIC was
    /// lost takes no partner away from another.
    pub fn partners(&self) -> Vec<Pair> {
        let pairs = self.pairs();
        let mut nearest: BTreeMap<PciAddress, PathKind> = BTreeMap::new();
        for pair in &pairs {
            let path = nearest.entry(pair.nic).or_insert(pair.path);
            *path = pair.path.min(*path);
        }
        pairs.into_iter().filter(|pair| nearest[&pair.nic] == pair.path).collect()
    }

    /// The pairs that a pod with these devices uses, by GPU and NIC: each GPU with its own NICs, or
    /// several GPUs with one NIC if there are fewer NICs. A device without partner in the plan is
    /// paired with the nearest device of the other kind.
    pub fn pairs_of(&self, gpus: &[PciAddress], nics: &[PciAddress]) -> Vec<Pair> {
        // A single GPU or NIC needs no plan.
        if gpus.len() == 1 || nics.len() == 1 {
            let pairs = gpus.iter().flat_map(|gpu| nics.iter().map(|nic| self.pair(*gpu, *nic)));
            return pairs.collect();
        }
        let per_gpu = nics.len().div_ceil(gpus.len().max(1));
        let shared = nics.len() < gpus.len();
        let mut pairs =
            self.plan(&PlanRequest { shared, ..PlanRequest::each(gpus, nics, per_gpu) });
        let left_gpus = gpus.iter().filter(|gpu| !pairs.iter().any(|pair| pair.gpu == **gpu));
        let left_nics = nics.iter().filter(|nic| !pairs.iter().any(|pair| pair.nic == **nic));
        let of_gpu = left_gpus.filter_map(|gpu| {
            nics.iter().map(|nic| self.pair(*gpu, *nic)).min_by_key(|pair| pair.path)
        });
        let of_nic = left_nics.filter_map(|nic| {
            gpus.iter().map(|gpu| self.pair(*gpu, *nic)).min_by_key(|pair| pair.path)
        });
        let left: Vec<Pair> = of_gpu.chain(of_nic).collect();
        pairs.extend(left);
        pairs.sort_unstable_by_key(|pair| (pair.gpu, pair.nic));
        pairs.dedup();
        pairs
    }

    /// The pair of a physical function, and the pairs of its virtual functions.
    fn with_virtual_functions(&self, pair: Pair) -> impl Iterator<Item = Pair> {
        let physical = Some(Place::Function(pair.nic));
        let functions = self.ends().filter(move |(_, vertex)| {
            vertex.role == Role::Nic && vertex.physical_function == physical
        });
        [pair].into_iter().chain(functions.map(move |(nic, _)| self.pair(pair.gpu, nic)))
    }

    /// The best plan, by GPU and NIC. A NIC serves only GPUs of its socket, or of its NUMA node if
    /// sockets are unknown. The order within a request does not matter.
    ///
    /// Eight criteria decide, in order of priority. A later one never outweighs an earlier one:
    ///
    /// 1. As many groups as possible get a first NIC, then a second one, and so on.
    /// 2. If NICs are shared, they serve as equal numbers of groups as possible.
    /// 3. The paths of the groups are short. Each pair counts 5 for PIX, 4 for PXB, 3 for PHB, 2 for
    ///    NODE and 1 for SYS within a socket, by the farthest GPU of the group.
    /// 4. Among paths of one kind, those with a shorter distance by the SLIT and with fewer PCIe links
    ///    are preferred.
    /// 5. As many of the remaining free GPUs as possible can get NICs, as in 1.
    /// 6. Their paths are short, as in 3,
    /// 7. and as in 4.
    /// 8. Pairs do not cross in address order.
    ///
    /// Example: a machine has two GPUs and two NICs on each switch, and NIC0 is in use. GPU0 and GPU1
    /// need one NIC each; GPU2 stays free.
    ///
    /// |      | NIC1 | NIC2 | NIC3 |
    /// |------|------|------|------|
    /// | GPU0 | PIX  | NODE | NODE |
    /// | GPU1 | PIX  | NODE | NODE |
    /// | GPU2 | NODE | PIX  | PIX  |
    ///
    /// NIC1 is nearest to both GPU0 and GPU1. Giving it to both, or to only one of them and nothing
    /// to the other, violates criterion 1. Among the plans with two pairs, criterion 3 prefers those
    /// with one PIX and one NODE (5 + 2). Four such plans exist: GPU0 or GPU1 gets NIC1, and the other
    /// one gets NIC2 or NIC3. Each of them leaves a PIX NIC for GPU2, so criteria 5 to 7 do not
    /// decide. Criterion 8 selects GPU0 with NIC1 and GPU1 with NIC2, which leaves NIC3 for GPU2.
    ///
    /// ```
    /// use topology_graph::fixture::{machine, plant};
    /// use topology_graph::{HostRoot, PlanRequest, Topology, read};
    ///
    /// let root = tempfile::tempdir()?;
    /// plant(machine("x86-two-per-switch").ok_or("no such machine")?, root.path())?;
    /// let (topology, _) = Topology::build(&read(&HostRoot::at(root.path()))?, None);
    /// let at = |name| topology.device(name);
    /// let request = PlanRequest {
    ///     groups: vec![vec![at("GPU0")?], vec![at("GPU1")?]],
    ///     nics: vec![at("NIC1")?, at("NIC2")?, at("NIC3")?],
    ///     per_group: 1,
    ///     rest: vec![at("GPU2")?],
    ///     ..PlanRequest::default()
    /// };
    /// let pairs = topology.plan(&request).into_iter().map(|pair| (pair.gpu, pair.nic));
    /// assert!(pairs.eq([(at("GPU0")?, at("NIC1")?), (at("GPU1")?, at("NIC2")?)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(&self, request: &PlanRequest) -> Vec<Pair> {
        self.plan_among(request, Reach::Socket)
    }

    fn plan_among(&self, request: &PlanRequest, reach: Reach) -> Vec<Pair> {
        let request = request.tidy();
        let groups = groups(&request);
        let pairs = best(&self.problem(&request, &groups, reach)).into_iter();
        let asked = pairs.filter(|(group, _)| groups[*group].tier == Tier::Asked);
        let mut pairs: Vec<Pair> = asked
            .flat_map(|(group, nic)| groups[group].gpus.iter().map(move |gpu| (*gpu, nic)))
            .map(|(gpu, nic)| self.pair(gpu, request.nics[nic]))
            .collect();
        pairs.sort_unstable_by_key(|pair| (pair.gpu, pair.nic));
        pairs
    }

    fn problem(&self, request: &PlanRequest, groups: &[Group<'_>], reach: Reach) -> Problem {
        let PlanRequest { nics, per_group, shared, .. } = request;
        let uses = if *shared { groups.len() } else { 1 };
        let gains = groups.iter().enumerate().map(|(at, group)| {
            let near = self.nearness_within(reach, group, nics).into_iter().enumerate();
            near.map(|(nic, near)| Some(group.tier.near(near?) + crossing(at, *per_group, nic)))
                .collect()
        });
        Problem {
            seats: groups.iter().map(|group| seats(group.tier, *per_group)).collect(),
            uses: nics.iter().map(|_| (0..uses).map(use_again).collect()).collect(),
            gains: gains.collect(),
        }
    }

    /// How near each NIC is to the group's farthest GPU; `None` for those that it may not get.
    fn nearness_within(
        &self,
        reach: Reach,
        group: &Group<'_>,
        nics: &[PciAddress],
    ) -> Vec<Option<Nearness>> {
        let mut near = self.nearness_of(group, nics);
        if reach == Reach::Nearest {
            let nearest = near.iter().flatten().max().copied();
            for near in &mut near {
                *near = near.filter(|near| Some(*near) == nearest);
            }
        }
        near
    }

    /// How near each NIC is to the group's farthest GPU.
    fn nearness_of(&self, group: &Group<'_>, nics: &[PciAddress]) -> Vec<Option<Nearness>> {
        nics.iter()
            .map(|nic| {
                let near = group.gpus.iter().map(|gpu| Nearness::new(self.distance(*gpu, *nic)?));
                near.collect::<Option<Vec<_>>>()?.into_iter().min()
            })
            .collect()
    }

    /// The NICs to plan for: compute NICs that are physical functions.
    fn pairable_nics(&self) -> Vec<PciAddress> {
        let compute = self.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        compute
            .map(|nic| nic.address)
            .filter(|nic| {
                let vertex = self.graph.vertex(Place::Function(*nic));
                vertex.is_some_and(|vertex| vertex.physical_function.is_none())
            })
            .collect()
    }

    fn pair(&self, gpu: PciAddress, nic: PciAddress) -> Pair {
        Pair { gpu, nic, path: self.path(gpu, nic) }
    }
}

/// The groups of the request, and the GPUs that stay free, by address.
fn groups(request: &PlanRequest) -> Vec<Group<'_>> {
    let asked = request.groups.iter().map(|gpus| Group { gpus, tier: Tier::Asked });
    let rest = request.rest.chunks(1).map(|gpus| Group { gpus, tier: Tier::Rest });
    let mut groups: Vec<_> = asked.chain(rest).collect();
    groups.sort_by_key(|group| group.gpus.first().copied());
    groups
}

impl Tier {
    /// The gain of a NIC; `left` counts down to 1 for the last NIC of the group.
    fn seat(self, left: i64) -> Gain {
        match self {
            Self::Asked => Gain([left, 0, 0, 0, 0, 0, 0, 0]),
            Self::Rest => Gain([0, 0, 0, 0, left, 0, 0, 0]),
        }
    }

    fn near(self, Nearness { steps, shortness }: Nearness) -> Gain {
        match self {
            Self::Asked => Gain([0, 0, steps, shortness, 0, 0, 0, 0]),
            Self::Rest => Gain([0, 0, 0, 0, 0, steps, shortness, 0]),
        }
    }
}

impl Nearness {
    /// `None` if the two are too far apart for a pair.
    fn new(distance: Distance) -> Option<Self> {
        let kind = distance.kind();
        let steps = match kind {
            PathKind::Pix | PathKind::Same | PathKind::NvLink(_) | PathKind::Xgmi => 5,
            PathKind::Pxb => 4,
            PathKind::Phb => 3,
            PathKind::Node => 2,
            PathKind::Sys if distance.is_in_socket() => 1,
            PathKind::Sys | PathKind::Unknown => return None,
        };
        let (slit, links) = distance.length();
        // The SLIT counts more than any number of links.
        let length = i64::from(slit) * MOST_LINKS + i64::from(links).min(MOST_LINKS - 1);
        Some(Self { steps, shortness: -length })
    }
}

/// The gains of the first, second, … NIC of a group; the first is worth the most.
fn seats(tier: Tier, per_group: usize) -> Vec<Gain> {
    (1..=per_group).rev().map(|left| tier.seat(whole(left))).collect()
}

/// The gain of using a NIC again; it falls with each use.
fn use_again(before: usize) -> Gain {
    Gain([0, -whole(before), 0, 0, 0, 0, 0, 0])
}

/// The gain for the distance between a NIC and the middle of the NICs that the group would get in
/// address order. It is convex, so that among equal plans the one without crossings wins.
fn crossing(group: usize, per_group: usize, nic: usize) -> Gain {
    let middle = (2 * group + 1) * per_group;
    let away = whole(middle.abs_diff(2 * nic + 1));
    Gain([0, 0, 0, 0, 0, 0, 0, -away.saturating_mul(away)])
}

/// Converts a count of devices.
fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The GPUs that are not seen yet, by address.
fn unseen(gpus: &[PciAddress], seen: &mut Vec<PciAddress>) -> Vec<PciAddress> {
    let mut unseen = sorted(gpus);
    unseen.retain(|gpu| !seen.contains(gpu));
    seen.extend(&unseen);
    unseen
}

fn sorted(addresses: &[PciAddress]) -> Vec<PciAddress> {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}
