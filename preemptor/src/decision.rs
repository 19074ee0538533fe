//! What is decided, and what from.

use super::budgets::Budgets;
use super::pods::Pods;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{ClaimAllocation, DeviceId};
use fabric_controller::Group;
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Devices, claims and nodes.
    pub view: &'a ClusterView,
    /// What nodes have besides devices.
    pub nodes: &'a Nodes,
    /// The pods that wait, and those that may leave.
    pub pods: &'a Pods,
    /// The groups that fabric-controller places, with their sizes.
    pub groups: &'a [Group],
    /// The `PodDisruptionBudgets`.
    pub budgets: &'a Budgets,
    /// Preemptions that have begun: what they place is taken, their victims have left, and nothing else
    /// is decided on their fabrics and nodes.
    pub begun: &'a [Preemption],
}

impl Cluster<'_> {
    /// The UIDs of the pods that leave by preemptions that have begun.
    pub(crate) fn leaving(&self) -> HashSet<&str> {
        let victims = self.begun.iter().flat_map(|it| &it.victims);
        victims.flat_map(|victim| &victim.pods).map(|victim| &*victim.pod.uid).collect()
    }

    /// The UIDs of the pods that preemptions place that have begun.
    pub(crate) fn served(&self) -> HashSet<&str> {
        let placements = self.begun.iter().flat_map(|it| &it.placements);
        placements.map(|placement| &*placement.pod.uid).collect()
    }
}

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The pods for which others leave.
    pub preemptors: Selection,
    /// The pods that may leave.
    pub victims: Selection,
    /// Whether pods may leave whose `PodDisruptionBudget` allows no disruption. The Eviction API refuses
    /// to evict them.
    pub may_violate_budgets: bool,
    /// Whether pods that let themselves be moved leave for pods for which nobody else does.
    pub may_move: bool,
}

/// Pods by namespace and `PriorityClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Their namespaces; `None` is all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Their `PriorityClasses`; `None` is all, also pods without a class.
    pub priority_classes: Option<BTreeSet<String>>,
}

impl Selection {
    /// Whether it has pods of this namespace and `PriorityClass`.
    pub fn has(&self, namespace: &str, priority_class: Option<&str>) -> bool {
        let of_namespace = self.namespaces.as_ref().is_none_or(|all| all.contains(namespace));
        let of_class = self
            .priority_classes
            .as_ref()
            .is_none_or(|all| priority_class.is_some_and(|class| all.contains(class)));
        of_namespace && of_class
    }
}

/// A pod: not another one that is created later with the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
}

/// One preemption: all of it leads to bound pods, or nothing of it is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// The priority of the pods that get devices.
    pub priority: i32,
    /// The fabric that is chosen for them, if their fabric gate is to be removed.
    pub fabric: Option<String>,
    /// The pods that get devices: one, or all of a group that wait.
    pub placements: Vec<Placement>,
    /// Who leaves, in this order: the lowest priority first.
    pub victims: Vec<Victim>,
    /// The devices of the placements, free or in use now: kept from other pods until these are bound.
    pub kept: Vec<DeviceId>,
    /// The other devices of those who leave: kept as well, since else kube-scheduler could place the pods
    /// there while some of a gang still run, which then stay as a part of it, or have left in vain.
    pub freed: Vec<DeviceId>,
    /// Whether those who leave let themselves be moved, and there is room for them on other nodes.
    pub moves: bool,
}

/// What a pod gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The pod.
    pub pod: PodId,
    /// The node.
    pub node: String,
    /// The domains of levels that its group requires, nearest level first.
    pub domains: Vec<LevelDomain>,
    /// Its claims that have no devices yet, in the pod's order.
    pub claims: Vec<PlacedClaim>,
}

/// The devices of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedClaim {
    /// The claim.
    pub claim: ObjectKey,
    /// What the allocator computed.
    pub allocation: ClaimAllocation,
}

/// Pods that leave together: one, or all pods of a job that cannot go on without one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its job, for people, if it is a job: `Job team/train`.
    pub job: Option<String>,
    /// The pods, by name.
    pub pods: Vec<VictimPod>,
}

/// A pod that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VictimPod {
    /// The pod.
    pub pod: PodId,
    /// Its node.
    pub node: String,
    /// Its priority.
    pub priority: i32,
    /// A `PodDisruptionBudget` that its eviction violates; only if the rules allow that.
    pub violates: Option<ObjectKey>,
}

/// A pod that waits for devices, for which nobody leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The pod; of a group, the first by name.
    pub pod: PodId,
    /// Why.
    pub why: NoPreemption,
}

/// Why nobody leaves for a pod that waits for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPreemption {
    /// The preemption policy of its `PriorityClass` is `Never`.
    NeverPreempts,
    /// The operator's rules do not let it preempt.
    NotAllowed,
    /// Pods of the job are missing, or have gates of other controllers: text for people.
    NotYet(String),
    /// No pod of lower priority has anything that it could get.
    NobodyIsLower,
    /// It would fit if these `PodDisruptionBudgets` allowed the eviction of pods of lower priority.
    BudgetForbids(Vec<ObjectKey>),
    /// It would fit if the operator's rules let these pods of lower priority leave.
    VictimsNotAllowed(Vec<ObjectKey>),
    /// It would not fit either if every pod of lower priority left.
    DoesNotHelp,
    /// kube-scheduler makes its claim for an extended resource only when it fits.
    ExtendedResource,
    /// kube-scheduler places it with the other pods of its PodGroup.
    InPodGroup,
    /// What it needs is not known, or takes too much work to compute: text for people.
    Unknown(String),
}

impl NoPreemption {
    /// Whether the pod may fit if pods move that let themselves be moved.
    pub(crate) fn is_helped_by_moves(&self) -> bool {
        match self {
            Self::NeverPreempts
            | Self::NobodyIsLower
            | Self::BudgetForbids(_)
            | Self::VictimsNotAllowed(_)
            | Self::DoesNotHelp => true,
            Self::NotAllowed
            | Self::NotYet(_)
            | Self::ExtendedResource
            | Self::InPodGroup
            | Self::Unknown(_) => false,
        }
    }

    /// A single word for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NeverPreempts => "NeverPreempts",
            Self::NotAllowed => "NotAllowed",
            Self::NotYet(_) => "NotYet",
            Self::NobodyIsLower => "NobodyIsLower",
            Self::BudgetForbids(_) => "BudgetForbids",
            Self::VictimsNotAllowed(_) => "VictimsNotAllowed",
            Self::DoesNotHelp => "DoesNotHelp",
            Self::ExtendedResource => "ExtendedResource",
            Self::InPodGroup => "InPodGroup",
            Self::Unknown(_) => "Unknown",
        }
    }
}

impl fmt::Display for NoPreemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverPreempts => {
                f.write_str("the preemption policy of its PriorityClass is `Never`")
            }
            Self::NotAllowed => f.write_str(
                "the flags of preemptor do not let pods of its namespace or PriorityClass preempt",
            ),
            Self::NotYet(why) | Self::Unknown(why) => f.write_str(why),
            Self::NobodyIsLower => f.write_str("no pod has a lower priority and devices for it"),
            Self::BudgetForbids(budgets) => {
                write!(f, "a PodDisruptionBudget forbids to evict pods of lower priority: ")?;
                list(f, budgets)
            }
            Self::VictimsNotAllowed(pods) => {
                write!(f, "the flags of preemptor do not let pods of lower priority leave: ")?;
                list(f, pods)
            }
            Self::DoesNotHelp => {
                f.write_str("it would not fit either if every pod of lower priority left")
            }
            Self::InPodGroup => f.write_str(
                "kube-scheduler places it together with the other pods of its PodGroup, for which \
                 preemptor evicts nobody",
            ),
            Self::ExtendedResource => f.write_str(
                "it asks for devices by an extended resource, for which kube-scheduler makes a claim \
                 only when the pod fits",
            ),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, keys: &[ObjectKey]) -> fmt::Result {
    for (index, key) in keys.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        write!(f, "{separator}{key}")?;
    }
    Ok(())
}

/// What is decided in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The next preemption.
    pub preemption: Option<Preemption>,
    /// The pods before it for which nobody leaves: highest priority first, then the oldest.
    pub refusals: Vec<Refusal>,
}
