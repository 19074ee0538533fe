//! kube-scheduler with our extender. It calls the extender's code for forecasts, mix and ranking
//! directly. A node's state is the set of its busy devices, so each forecast is computed once. A
//! test compares the scores with those of the extender on a view of the whole cluster.

use std::collections::HashMap;
use std::sync::Arc;

use cluster_model::names::label;
use cluster_model::room::OpenClaim;
use cluster_model::view::ObjectKey;
use foldhash::fast::RandomState;
use scheduler_ext::arrivals::Arrivals;
use scheduler_ext::forecast::{Forecast, ForecastQuestion};
use scheduler_ext::machine::{Cells, NodeMachine};
use scheduler_ext::score::{Cost, Costs, Demand, FreeCells, Gets, Mix, Outcome, rank};

use super::kube::{KubeScheduler, Strategy};
use crate::claims::{ClaimError, Claims, NAMESPACE, PlannedPod, kind_node};
use crate::cluster::Cluster;
use crate::machine::Devices;
use crate::policy::{Candidate, Pod, Policy};

/// The extender's weight in the scheduler's configuration in `deploy`.
const WEIGHT: i64 = 18;
/// The value of an extender's point: `MaxNodeScore / MaxExtenderPriority`.
const POINT: i64 = 10;

/// kube-scheduler with its defaults and the extender.
#[derive(Debug)]
pub struct SchedulerExt {
    kube: KubeScheduler,
    /// Whether nodes have labels with their NVLink domains.
    knows_domains: bool,
    /// By kind.
    machines: Vec<NodeMachine>,
    claims: Arc<Claims>,
    prior: Mix,
    mix: Mix,
    /// Changes with the mix.
    mix_version: u64,
    /// The pods that were bound most recently.
    arrivals: Arrivals,
    /// By kind, busy devices and the pod's GPUs.
    known: HashMap<(usize, Devices, u32), Effect, RandomState>,
    /// By fabric.
    whole_nodes: Vec<u32>,
    /// By NVLink domain.
    whole_of_domains: Vec<u32>,
}

/// The effect of a pod on a node.
#[derive(Debug)]
struct Effect {
    gets: Gets,
    before: FreeCells,
    after: FreeCells,
    /// The cost, with the version of the mix that it was computed for.
    cost: (u64, Cost),
}

impl SchedulerExt {
    /// Creates the extender for an idle cluster.
    pub fn new(claims: Arc<Claims>) -> Self {
        Self {
            kube: KubeScheduler { strategy: Strategy::LeastAllocated },
            knows_domains: true,
            machines: (0..claims.machines.len())
                .map(|kind| {
                    let (view, node) = (claims.view(), kind_node(kind));
                    let cells = view.topology(&node).map(|graph| Cells::new(Arc::clone(graph)));
                    NodeMachine::of(view, &node, Arc::new(cells.unwrap_or_default()))
                })
                .collect(),
            claims,
            prior: Mix::default(),
            mix: Mix::default(),
            mix_version: 0,
            arrivals: Arrivals::default(),
            known: HashMap::default(),
            whole_nodes: Vec::new(),
            whole_of_domains: Vec::new(),
        }
    }

    /// The same on nodes without labels of NVLink domains.
    #[must_use]
    pub fn without_domains(self) -> Self {
        Self { knows_domains: false, ..self }
    }

    fn outcome(&mut self, pod: Pod, candidate: &Candidate, cluster: &Cluster) -> Outcome {
        let node = &cluster.nodes[candidate.node];
        let key = (node.kind, node.busy, pod.gpus);
        let (claims, machine) = (&self.claims, &self.machines[node.kind]);
        let (mix, version) = (&self.mix, self.mix_version);
        let known = self
            .known
            .entry(key)
            .or_insert_with(|| Effect::new(claims, machine, mix, version, (key, candidate)));
        if known.cost.0 != version {
            let cost = Cost::new(&known.before, &known.after, machine.whole(), mix);
            known.cost = (version, cost);
        }
        let mut cost = known.cost.1;
        if node.busy == 0 {
            let domain = node.domain.filter(|_| self.knows_domains);
            let of_domain = domain.map(|domain| self.whole_of_domains[domain]);
            for whole_nodes in [self.whole_nodes[node.fabric]].into_iter().chain(of_domain) {
                cost = cost.breaking_one_of(whole_nodes, mix);
            }
        }
        Outcome { gets: known.gets, cost }
    }

    /// Counts the whole nodes.
    fn look(&mut self, cluster: &Cluster) {
        self.whole_nodes.clear();
        self.whole_nodes.resize(cluster.fabrics(), 0);
        self.whole_of_domains.clear();
        self.whole_of_domains.resize(cluster.domains(), 0);
        for node in cluster.nodes.iter().filter(|node| node.busy == 0) {
            self.whole_nodes[node.fabric] += 1;
            if let Some(domain) = node.domain {
                self.whole_of_domains[domain] += 1;
            }
        }
    }
}

impl Effect {
    fn new(
        claims: &Claims,
        machine: &NodeMachine,
        mix: &Mix,
        mix_version: u64,
        ((kind, busy, gpus), candidate): ((usize, Devices, u32), &Candidate),
    ) -> Self {
        let open: Vec<OpenClaim> = claims.planned(gpus).ok().into_iter().map(open).collect();
        let question = ForecastQuestion { claims: &open, held: &[], mix };
        let in_use = claims.state(kind, busy);
        let allocations = &candidate.placement.allocations;
        let forecast =
            Forecast::new(question, (machine, None), allocations, &in_use, &mut Costs::default());
        let [before, after] = machine.rooms(&in_use, &forecast.taken);
        Self { gets: forecast.gets, before, after, cost: (mix_version, forecast.cost) }
    }
}

/// The claim as the extender sees it.
fn open(planned: &PlannedPod) -> OpenClaim {
    OpenClaim {
        key: ObjectKey { namespace: NAMESPACE.to_owned(), name: "job".to_owned() },
        is_made: true,
        is_ours: planned.labels.contains_key(label::TEMPLATE),
        spec: Arc::clone(&planned.spec),
    }
}

impl Policy for SchedulerExt {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        let kube = self.kube.scores(pod, candidates, cluster);
        // With a single candidate, the scheduler does not call the extender.
        if candidates.len() < 2 {
            return kube;
        }
        self.look(cluster);
        let outcomes: Vec<_> =
            candidates.iter().map(|it| Some(self.outcome(pod, it, cluster))).collect();
        let points = rank(&outcomes);
        kube.iter().zip(points).map(|(kube, points)| kube + points * WEIGHT * POINT).collect()
    }

    fn bound(&mut self, pod: Pod, _chosen: &Candidate) -> Result<(), ClaimError> {
        self.arrivals.add(Demand::gpus(pod.gpus));
        if let Some(mix) = self.arrivals.mix(&self.prior, &self.mix) {
            self.mix = mix;
            self.mix_version += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Alignment, Placer, Shape};
    use crate::machine;
    use crate::policy::best;
    use topology_graph::PathKind;

    /// Regression: on both nodes each GPU has a NIC on its own switch, but the pod went to the node
    /// with a whole NUMA node, and broke that.
    #[test]
    fn four_pairs_are_as_good_on_two_numa_nodes() {
        let machine = machine::SimulatedMachine::load("azure-ndh100v5").unwrap();
        let claims = Claims::new(vec![machine.clone()]).unwrap();
        let claims = Arc::new(claims.plan([4], Alignment::Preferred).unwrap());
        let mut cluster = Cluster::new(&claims.machines, 2, 2);
        for (node, gpus) in [(0, [0, 1, 4, 5]), (1, [0, 1, 2, 3])] {
            cluster.take(node, pairs(&machine, gpus));
        }
        let mut placer = Placer::new(claims.clone());
        let four = Shape { gpus: 4, template: 0 };
        let candidates = [0, 1].map(|node| {
            let placement = placer.place(0, cluster.nodes[node].busy, four).unwrap().unwrap();
            Candidate { node, placement }
        });
        for candidate in &candidates {
            assert_eq!(candidate.placement.pairs, [PathKind::Pix; 4]);
        }
        let pod = Pod { uid: 0, gpus: 4 };
        let scores = SchedulerExt::new(claims).scores(pod, &candidates, &cluster);
        assert_eq!(best(&scores), [0], "{scores:?}");
    }

    /// These GPUs, each with the NIC on its switch.
    fn pairs(machine: &machine::SimulatedMachine, gpus: [usize; 4]) -> Devices {
        let (all, nics) = machine.devices.split_at(machine.gpus as usize);
        let bits = gpus.map(|gpu| {
            let is_near = |nic: &machine::Device| {
                machine.topology.path(all[gpu].address, nic.address) == PathKind::Pix
            };
            1 << gpu | 1 << (all.len() + nics.iter().position(is_near).unwrap())
        });
        bits.iter().fold(0, |all: Devices, bit: &Devices| all | bit)
    }
}
