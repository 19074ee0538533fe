//! What preemptor would do for a pod, and who has which priority.

use crate::answer::{ExplainPreemption, LowerHolder, PreemptionVictim};
use crate::moves::user;
use crate::settings::PREEMPTOR;
use crate::source::ReadCluster;
use crate::text::{counted, listed};
use cluster_model::node_devices::published;
use cluster_model::room::{Nodes, PodKey};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimName;
use fabric_controller::group::{Group, GroupKey, Member};
use fabric_controller::preview;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use preemptor::{Budgets, Cluster, NoPreemption, Pods, Preemption, Rules, Victim, decide_on};
use serde::Deserialize as _;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// What is known of pods besides their room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preemptions {
    pub(crate) pods: Pods,
    budgets: Budgets,
    groups: Vec<Group>,
    /// Whether preemptor is installed.
    is_installed: bool,
}

impl Preemptions {
    pub(crate) fn new(seen: &ReadCluster) -> anyhow::Result<Self> {
        let mut all = Self { groups: preview::known(&seen.group_pods()?), ..Self::default() };
        seen.pods(None)?.iter().for_each(|pod| all.pods.apply(pod));
        for budget in seen.of_kind("PodDisruptionBudget") {
            all.budgets.apply(PodDisruptionBudget::deserialize(budget)?);
        }
        let mut deployments = seen.of_kind("Deployment");
        all.is_installed = deployments.any(|it| it["metadata"]["name"] == PREEMPTOR);
        Ok(all)
    }

    /// What decisions are made from.
    pub(crate) fn cluster<'a>(&'a self, view: &'a ClusterView, nodes: &'a Nodes) -> Cluster<'a> {
        let Self { pods, budgets, groups, .. } = self;
        Cluster { view, nodes, pods, groups, budgets, begun: &[] }
    }

    /// The group of a pod that waits for a fabric.
    pub(crate) fn waiting_group(&self, pod: &Pod) -> Option<&Group> {
        let (key, member) = Member::new(pod)?;
        let group = self.groups.iter().find(|group| group.key == key)?;
        group.gated().any(|gated| gated.uid == member.uid).then_some(group)
    }

    /// The preemption for a pod, if there can be one.
    pub(crate) fn decide(
        &self,
        pod: &Pod,
        view: &ClusterView,
        nodes: &Nodes,
    ) -> Option<Result<Preemption, NoPreemption>> {
        let mut known = self.clone();
        known.pods.apply(pod);
        let key = ObjectKey::new(&pod.metadata);
        decide_on(&key, known.cluster(view, nodes), &Rules::default(), Timestamp::now())
    }

    /// The same for people; `None` if nobody is evicted, and no budget is the reason.
    pub(crate) fn explain(
        &self,
        pod: &Pod,
        view: &ClusterView,
        nodes: &Nodes,
    ) -> Option<ExplainPreemption> {
        self.told(self.decide(pod, view, nodes)?)
    }

    fn told(&self, decided: Result<Preemption, NoPreemption>) -> Option<ExplainPreemption> {
        let installed = self.is_installed;
        let (nodes, victims, refused) = match decided {
            Ok(Preemption { placements, victims, .. }) => {
                let nodes = placements.into_iter().map(|placement| placement.node).collect();
                (nodes, victims.into_iter().map(PreemptionVictim::from).collect(), None)
            }
            Err(why @ (NoPreemption::BudgetForbids(_) | NoPreemption::InPodGroup)) => {
                (Vec::new(), Vec::new(), Some(why.to_string()))
            }
            Err(_) => return None,
        };
        Some(ExplainPreemption { nodes, victims, refused, installed })
    }

    /// What preemptor does for a group that waits; the same.
    pub(crate) fn of_group(
        &self,
        key: &GroupKey,
        view: &ClusterView,
        nodes: &Nodes,
    ) -> Option<ExplainPreemption> {
        let group = self.groups.iter().find(|group| group.key == *key)?;
        let pod = ObjectKey {
            namespace: key.namespace.clone(),
            name: group.gated().next()?.name.clone(),
        };
        self.told(decide_on(&pod, self.cluster(view, nodes), &Rules::default(), Timestamp::now())?)
    }

    /// The priority of a pod on a node, if it is not 0.
    pub(crate) fn priority(&self, node: &str, pod: &ObjectKey) -> Option<i32> {
        priority(&self.pods, node, pod).filter(|priority| *priority != 0)
    }
}

/// The pod of the highest priority that waits for devices and may take them from others, with its
/// priority; the first by name of equal ones.
pub(crate) fn first_waiting(pods: &Pods) -> Option<(ObjectKey, i32)> {
    let waiting = pods.waiting().filter(|(_, pod)| pod.ask.has_claims());
    let waiting = waiting.filter_map(|(key, pod)| Some((key, pod.ask.preempting_priority()?)));
    let (key, priority) = waiting.min_by_key(|(key, priority)| (Reverse(*priority), *key))?;
    Some((key.into(), priority))
}

/// The pods with devices of a node that have a lower priority than this, by name.
pub(crate) fn lower_holders(
    view: &ClusterView,
    (node, pods): (&str, &Pods),
    limit: i32,
) -> Vec<LowerHolder> {
    let inventory = view.inventory();
    let devices = published(view, node).map(|(_, device)| device.id());
    let claims: BTreeSet<&ClaimName> = devices.flat_map(|id| inventory.holders(id)).collect();
    let users = claims.into_iter().filter_map(|claim| user(view, claim));
    let users: BTreeSet<ObjectKey> = users.collect();
    let lower = users.into_iter().filter_map(|user| {
        let priority = priority(pods, node, &user).filter(|priority| *priority < limit)?;
        Some(LowerHolder { pod: user.to_string(), priority })
    });
    lower.collect()
}

/// The priority of a pod on a node.
fn priority(pods: &Pods, node: &str, pod: &ObjectKey) -> Option<i32> {
    let key = PodKey { namespace: pod.namespace.as_str().into(), name: pod.name.as_str().into() };
    Some(pods.on_node(node, &key)?.priority)
}

impl From<Victim> for PreemptionVictim {
    fn from(Victim { job, pods }: Victim) -> Self {
        let priority = pods.iter().map(|pod| pod.priority).max().unwrap_or_default();
        let pods = pods.into_iter().map(|pod| pod.pod.key.to_string()).collect();
        Self { job, pods, priority }
    }
}

impl fmt::Display for PreemptionVictim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, pods, priority } = self;
        match job {
            Some(job) => write!(f, "{job} ({}", counted(pods.len(), "pod"))?,
            None => write!(f, "pod {} (", pods.join(", "))?,
        }
        let separator = if job.is_some() { ", " } else { "" };
        write!(f, "{separator}priority {priority})")
    }
}

impl fmt::Display for ExplainPreemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, victims, refused, installed } = self;
        if let Some(why) = refused {
            return write!(f, "Preemptor evicts nobody for it: {why}");
        }
        let who: Vec<String> = victims.iter().map(ToString::to_string).collect();
        let (who, nodes) = (listed(&who), listed(nodes));
        if *installed {
            write!(f, "Preemptor evicts {who} for it, and then it runs on {nodes}")
        } else {
            write!(
                f,
                "With preemptor (`preemption.enabled` of the chart), {who} would be evicted for it, and \
                 it would run on {nodes}"
            )
        }
    }
}
