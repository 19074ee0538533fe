//! A cluster in which pods are scheduled one after another. Nodes are filtered like in
//! kube-scheduler by claims, selectors, taints and resources, and ranked by the extender's scores.

use super::{added, claim};
use crate::answer::{Device, Evicted, Placed, Unknown};
use crate::args::AddedNodes;
use crate::explain::{self, Answer, Scene, binding_conditions, quota};
use crate::groups::{CreatedPods, group_of};
use crate::in_use::{InUse, leave};
use crate::nodes::{fabric, machine};
use crate::predicted::add_planned;
use crate::preemption::Preemptions;
use crate::source::ReadCluster;
use crate::subject::Subject;
use admission::admit::{Verdict, admit};
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster_model::gpu_drivers;
use cluster_model::names::GATE_FABRIC;
use cluster_model::predict::{Fit, Prediction, budget};
use cluster_model::room::{
    Amounts, Ask, Delay, Extended, PodClaims, Preemption, Preferences, pod_claims,
};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::DeviceId;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::preview::GroupPreview;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use scheduler_ext::answer::Scored;
use scheduler_ext::expected::Expected;
use scheduler_ext::prioritize::Ranker;
use scheduler_ext::score::{AtStart, Gets, WORTH_OF_POINT};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// The cluster with the pods placed so far.
pub(super) struct Cluster {
    pub(super) view: ClusterView,
    in_use: InUse,
    preemptions: Preemptions,
    /// Whether pods of lower priority give way for devices.
    preempts: bool,
    groups: GroupPods,
    quotas: Vec<Value>,
    policy: Policy,
    ranker: Ranker,
    /// The last pod that admission decided on, without its name, and the verdict: pods of a
    /// workload differ only in their names.
    admitted: Option<(Value, Verdict)>,
    /// The fabric of each group, or why it waits.
    fabrics: BTreeMap<ObjectKey, Result<String, String>>,
    created: CreatedPods,
    start: (Instant, Timestamp),
}

/// The result for a pod.
pub(super) enum Fate {
    Placed(Box<Placed>),
    Kept(Answer),
}

/// The node that is chosen for a pod.
struct NodeChoice {
    node: String,
    /// What the pod gets there; `None` if it takes no devices.
    gets: Option<Gets>,
    /// The extender's points for the node; `None` if the pod takes no devices.
    score: Option<i64>,
    /// Nodes that kube-scheduler may prefer as much, as far as that is known.
    equal_nodes: Vec<String>,
}

/// What a pod gets on its node, and what happens to it there.
struct Bound {
    devices: Vec<Device>,
    evicted: Option<Evicted>,
    binds_after: Vec<String>,
}

/// A pod as admission left it, with its claims.
struct Asked {
    pod: Pod,
    known: PodClaims,
    ask: Ask,
}

/// What gives way to a pod.
#[derive(Default)]
struct GivenWay {
    /// The nodes on which it then fits.
    nodes: Vec<String>,
    /// The pods that are evicted there.
    evicts: Vec<String>,
    /// The nodes on which others would be with as little harm.
    equal: Vec<String>,
    /// What is not known of when it is bound.
    delay: Option<Unknown>,
}

fn device(DeviceId { driver, pool, device }: &DeviceId) -> Device {
    let [driver, pool, name] = [driver, pool, device].map(ToString::to_string);
    Device { driver, pool, name }
}

/// The number of GPUs that a node's device plugin gives a pod.
fn plugin_gpus(view: &ClusterView, requests: &Amounts, node: &str) -> usize {
    let resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
    let offered = resources.filter(|resource| view.plugin_units(node, resource).is_some());
    let units: i64 = offered.map(|resource| requests.units(resource)).sum();
    usize::try_from(units).unwrap_or_default()
}

/// How many nodes on which a pod fits kube-scheduler looks for, of so many in the cluster
/// (`numFeasibleNodesToFind`).
fn examined(nodes: usize) -> usize {
    const LEAST: usize = 100;
    const LEAST_PERCENT: usize = 5;
    let percent = 50_usize.saturating_sub(nodes / 125).max(LEAST_PERCENT);
    (nodes * percent / 100).max(LEAST)
}

impl Cluster {
    pub(super) fn new(
        mut seen: ReadCluster,
        policy: Policy,
        (added, preempts): (&[AddedNodes], bool),
        expected: Expected,
    ) -> anyhow::Result<Self> {
        let mut in_use = seen.in_use()?;
        let preemptions = Preemptions::new(&seen)?;
        let groups = seen.group_pods()?;
        let quotas = seen.quotas();
        let ReadCluster { mut view, kept, .. } = seen;
        let mut count = 0;
        for asked in added {
            count += added::add(&mut view, &mut in_use.nodes, &kept, (asked, count))?;
        }
        Ok(Self {
            view,
            in_use,
            preemptions,
            preempts,
            groups,
            quotas,
            policy,
            ranker: Ranker::new(expected),
            admitted: None,
            fabrics: BTreeMap::new(),
            created: CreatedPods::default(),
            start: (Instant::now(), Timestamp::now()),
        })
    }

    /// Says which pods will be created: a group is placed when all its pods exist.
    pub(super) fn expect(&mut self, subjects: &[Subject]) {
        self.created = CreatedPods::new(subjects, &self.view, &self.policy, &self.quotas);
    }

    /// Creates a pod and schedules it. `size` is the number of pods of its job, if that is known.
    pub(super) fn place(
        &mut self,
        (name, pod): (&str, &Value),
        size: Option<u64>,
    ) -> anyhow::Result<Fate> {
        let asked = match self.query(pod, size)? {
            Ok(asked) => asked,
            Err(answer) => return Ok(Fate::Kept(answer)),
        };
        let Asked { pod: admitted, known, .. } = &asked;
        let refused = quota::refusal(admitted, known, &self.quotas, &self.view);
        let fits = if refused.is_none() { self.fits(&asked.ask)? } else { Vec::new() };
        let mut given_way = GivenWay { nodes: fits, ..GivenWay::default() };
        if given_way.nodes.is_empty() && refused.is_none() {
            given_way = self.preempt(&asked.ask)?;
        }
        if given_way.nodes.is_empty() && refused.is_none() && self.preempts {
            given_way = self.preempt_for_devices(&asked.pod);
        }
        let GivenWay { nodes: fits, evicts, equal, delay } = given_way;
        if fits.is_empty() {
            let fabric = asked.ask.fabric();
            return Ok(Fate::Kept(explain::answer(pod, self.scene(fabric))?));
        }
        let NodeChoice { node, gets, score, mut equal_nodes } = self.choose(&asked, &fits)?;
        if !evicts.is_empty() {
            equal_nodes = equal;
        }
        let plugin_gpus = plugin_gpus(&self.view, &asked.ask.requests, &node);
        quota::charge(&asked.pod, &asked.known, &mut self.quotas, &self.view);
        let Bound { devices, evicted, binds_after } = self.bind(asked, &node)?;
        let at_start = gets.and_then(|gets| gets.at_start);
        Ok(Fate::Placed(Box::new(Placed {
            pod: name.to_owned(),
            machine: machine(&self.view, &node),
            fabric: fabric(&self.view, &node),
            node,
            path: gets.and_then(|gets| gets.farthest).map(|reach| reach.path),
            near_eighths: at_start.map(|it| AtStart::PARTS - it.missed),
            score,
            equal_nodes,
            evicts,
            evicted,
            binds_after,
            devices,
            has_choice: fits.len() > 1,
            delay,
            is_sampled: fits.len() > examined(self.view.present_nodes().count()),
            plugin_gpus,
        })))
    }

    fn scene<'s>(&'s self, fabric: Option<&'s str>) -> Scene<'s> {
        let Self { view, policy, in_use, preemptions, quotas, .. } = self;
        Scene { view, policy, in_use, preemptions, fabric, quotas, workloads: &[] }
    }

    fn explained(&self, pod: &Value) -> anyhow::Result<Answer> {
        explain::answer(pod, self.scene(None))
    }

    /// Returns the pod as admitted, or the answer if nodes need not be examined.
    fn query(&mut self, pod: &Value, size: Option<u64>) -> anyhow::Result<Result<Asked, Answer>> {
        let Some(verdict) = self.admit(pod) else { return Ok(Err(self.explained(pod)?)) };
        let typed = Pod::deserialize(&verdict.pod)?;
        let mut gates = typed.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        let is_gated = gates.any(|gate| gate.name != GATE_FABRIC);
        if is_gated || typed.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            return Ok(Err(self.explained(pod)?));
        }
        let namespace = typed.metadata.namespace.clone().unwrap_or_default();
        if let Some(planned) = &verdict.planned {
            add_planned(&mut self.view, planned, &namespace)?;
        }
        let Ok(known) = pod_claims(&typed, &self.view) else {
            return Ok(Err(self.explained(pod)?));
        };
        let fabric = match self.fabric(&verdict, size) {
            Ok(fabric) => fabric,
            Err(why) => return Ok(Err(Answer::Refused(format!("waits for a fabric: {why}")))),
        };
        let ask = Ask::new(&typed).on_fabric(fabric.as_deref());
        if ask.claims(&self.view).is_err() {
            return Ok(Err(self.explained(pod)?));
        }
        Ok(Ok(Asked { pod: typed, known, ask }))
    }

    /// Returns admission's verdict on a pod; `None` if the pod is denied.
    fn admit(&mut self, pod: &Value) -> Option<Verdict> {
        let name = &pod["metadata"]["name"];
        let mut unnamed = pod.clone();
        unnamed["metadata"]["name"] = Value::Null;
        if let Some((_, verdict)) = self.admitted.as_ref().filter(|(it, _)| *it == unnamed) {
            let mut verdict = verdict.clone();
            verdict.pod["metadata"]["name"] = name.clone();
            return Some(verdict);
        }
        let verdict = admit(pod, &self.view, &self.policy).ok()?;
        // Where claims are pinned to cells, the next pod may get others.
        let is_pinned = verdict.planned.as_ref().is_some_and(|it| !it.plan.pins.is_empty());
        self.admitted = (!is_pinned).then(|| (unnamed, verdict.clone()));
        Some(verdict)
    }

    /// Returns the fabric of the pod's group, if it is in one.
    fn fabric(&mut self, verdict: &Verdict, size: Option<u64>) -> Result<Option<String>, String> {
        let is_placed = verdict.planned.is_some() && self.policy.fabric != FabricPlacement::Off;
        let Some(key) = group_of(&verdict.pod).filter(|_| is_placed) else { return Ok(None) };
        if let Some(known) = self.fabrics.get(&key) {
            return known.clone().map(Some);
        }
        let (size, now) = ((size, self.created.of(&verdict.pod)), self.start.1);
        let group = GroupPreview::planned(&verdict.pod, size, &self.groups, now);
        let Some(group) = group else { return Ok(None) };
        let answer = group.answer(&self.view, &self.in_use.nodes, now);
        self.fabrics.insert(key, answer.clone());
        answer.map(Some)
    }

    /// The nodes on which the pod fits.
    fn fits(&self, ask: &Ask) -> anyhow::Result<Vec<String>> {
        let budget = budget(&self.view);
        let room = self.in_use.room(&self.view, &budget);
        let attempt = room.attempt(ask, self.view.present_nodes()).map_err(anyhow::Error::msg)?;
        Ok(attempt.fits().into_iter().map(str::to_owned).collect())
    }

    /// The node on which pods of lower priority give way, without them, their names, and the nodes on
    /// which they may give way as well.
    fn preempt(&mut self, ask: &Ask) -> anyhow::Result<GivenWay> {
        let budget = budget(&self.view);
        let room = self.in_use.room(&self.view, &budget);
        let found = room.preempt(ask, self.view.present_nodes()).map_err(anyhow::Error::msg)?;
        let Some(Preemption { node, victims, equal, delay }) = found else {
            return Ok(GivenWay::default());
        };
        let nodes = vec![node.to_owned()];
        let equal = equal.into_iter().map(str::to_owned).collect();
        let evicts = self.evict(&victims);
        let delay = delay.map(|delay| match delay {
            Delay::TriedAgain => Unknown::TriedAgain,
            Delay::Ending => Unknown::EndingPods,
        });
        Ok(GivenWay { nodes, evicts, equal, delay })
    }

    /// The same for devices, by preemptor.
    fn preempt_for_devices(&mut self, pod: &Pod) -> GivenWay {
        let found = self.preemptions.decide(pod, &self.view, &self.in_use.nodes);
        let Some(Ok(found)) = found else { return GivenWay::default() };
        let pods = found.victims.into_iter().flat_map(|victim| victim.pods);
        let victims: Vec<ObjectKey> = pods.map(|victim| victim.pod.key).collect();
        let nodes = found.placements.into_iter().map(|placement| placement.node);
        let nodes: Vec<String> = nodes.collect();
        let equal = nodes.clone();
        GivenWay { nodes, evicts: self.evict(&victims), equal, delay: None }
    }

    /// Lets pods leave; returns their names.
    fn evict(&mut self, victims: &[ObjectKey]) -> Vec<String> {
        for key in victims {
            leave(&mut self.view, &mut self.in_use.nodes, key);
            self.preemptions.pods.delete(key);
        }
        victims.iter().map(ToString::to_string).collect()
    }

    /// The node that kube-scheduler prefers, the first by name of several that may be, with what the pod
    /// gets there.
    fn choose(
        &self,
        Asked { pod, ask, .. }: &Asked,
        fits: &[String],
    ) -> anyhow::Result<NodeChoice> {
        self.ranker.learn(&self.view);
        let answer = self.ranker.prioritize(pod, fits, &self.view, self.start.0, &|| false);
        let scored: BTreeMap<&str, &Scored> =
            answer.nodes.iter().map(|scored| (&*scored.node, scored)).collect();
        let budget = budget(&self.view);
        let room = self.in_use.room(&self.view, &budget);
        let nodes: Vec<&str> = fits.iter().map(String::as_str).collect();
        let own = room.scores((ask, &Preferences::new(pod)), &nodes, &self.in_use.images);
        let own = own.map_err(anyhow::Error::msg)?;
        let sums = nodes.iter().zip(own.points).map(|(node, points)| {
            let score = scored.get(node).map_or(0, |scored| scored.score);
            (points + WORTH_OF_POINT * score, *node)
        });
        let sums: Vec<(i64, &str)> = sums.collect();
        let best = sums.iter().map(|(sum, _)| *sum).max().unwrap_or_default();
        let equal = sums.iter().filter(|(sum, _)| sum + own.unknown >= best);
        let mut equal_nodes: Vec<String> = equal.map(|(_, node)| (*node).to_owned()).collect();
        equal_nodes.sort_unstable();
        let first = sums.iter().filter(|(sum, _)| *sum == best).map(|(_, node)| *node).min();
        let node = first.unwrap_or_default();
        let scored = scored.get(node);
        let gets = scored.and_then(|it| it.reason.outcome()).map(|it| it.gets);
        let score = scored.map(|scored| scored.score);
        Ok(NodeChoice { node: node.to_owned(), gets, score, equal_nodes })
    }

    /// The spec of the claim that stands for extended resources on this node.
    fn claim_for_extended(
        &self,
        ask: &Ask,
        node: &str,
    ) -> anyhow::Result<Option<ResourceClaimSpec>> {
        let extended = Extended::new(&ask.requests, &self.view);
        let facts = self.in_use.nodes.facts(node);
        let Some((extended, facts)) = extended.zip(facts) else { return Ok(None) };
        let missing = extended.missing_on(facts);
        Ok((!missing.is_empty()).then(|| extended.claim(&missing)).transpose()?.map(|it| it.1))
    }

    /// Allocates the claims and puts the pod on the node.
    fn bind(&mut self, asked: Asked, node: &str) -> anyhow::Result<Bound> {
        let Asked { mut pod, known, ask } = asked;
        let shared = known.allocated.iter().flat_map(|key| self.view.held_by(key));
        let shared: Vec<Device> = shared.map(device).collect();
        let by_claim = self.claim_for_extended(&ask, node)?;
        let budget = budget(&self.view);
        let room = self.in_use.room(&self.view, &budget);
        let attempt = room.attempt(&ask, [node]).map_err(anyhow::Error::msg)?;
        let Some((_, Prediction::Fits(Fit { allocations, .. }))) = attempt.each().next() else {
            anyhow::bail!("the claims fit on node `{node}`, and then did not");
        };
        let eviction = room.eviction(node, &ask, &allocations);
        let (volume_claims, volumes) = room.taken_volumes(node, &ask);
        let evicted = eviction.map(|eviction| Evicted::new(node, &eviction));
        let binds_after = binding_conditions(&allocations).into_iter().collect();
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some(node.to_owned());
        let entries = spec.resource_claims.iter().flatten();
        let mut made = entries
            .filter(|entry| entry.resource_claim_template_name.is_some())
            .map(|entry| entry.name.clone())
            .collect::<Vec<_>>()
            .into_iter();
        if let Some((spec, allocation)) = by_claim.zip(allocations.get(known.open.len())) {
            self.view.apply(claim::of_extended(&self.view, &pod, spec, allocation))?;
        }
        let mut statuses = Vec::new();
        for (open, allocation) in known.open.iter().zip(&allocations) {
            let entry = if open.is_made { None } else { made.next() };
            let key = claim::name(&self.view, &pod, open, entry.as_deref());
            let claim = claim::allocated(&self.view, &pod, open, (&key, allocation));
            statuses.extend(entry.map(|name| PodResourceClaimStatus {
                name,
                resource_claim_name: Some(key.name.clone()),
            }));
            self.view.apply(claim)?;
        }
        pod.status.get_or_insert_default().resource_claim_statuses = Some(statuses);
        for claim in volume_claims {
            self.view.apply(claim)?;
        }
        for volume in volumes {
            self.view.apply(volume)?;
        }
        self.in_use.nodes.apply_pod(&pod);
        self.preemptions.pods.apply(&pod);
        self.view.apply(pod)?;
        self.ranker.settle(&self.view, self.start.0);
        let results = allocations.iter().flat_map(|allocation| &allocation.results);
        let devices = results.map(|result| device(&result.device)).chain(shared).collect();
        Ok(Bound { devices, evicted, binds_after })
    }
}
