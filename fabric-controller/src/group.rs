//! Groups, and the facts about each of their pods.

use super::chosen;
use super::job_name::JobName;
use super::size::{Owner, Size, controller, is_in_pod_group, label_or_annotation};
use cluster_model::fabric_level::{FabricLevel, LevelDomain, LevelRequests};
use cluster_model::names::{CONDITION_FABRIC, GATE_FABRIC, annotation, job_label, label};
use cluster_model::room::{Ask, are_allocated, made_claims};
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Identity of a group: namespace, and value of the pods' group label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The namespace.
    pub namespace: String,
    /// The label's value.
    pub label: String,
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.label)
    }
}

/// The stage of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodStage {
    /// Held by the fabric controller's gate, or by the scheduler until its `PodGroup` is
    /// complete.
    Gated,
    /// It waits for the scheduler.
    Released,
    /// It has a node.
    Bound(String),
    /// It has succeeded, and no controller creates it again.
    Succeeded,
}

/// A pod of a group. Pods that are being deleted or have failed are not members.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about the pod")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resource version when it was read.
    pub version: String,
    /// When it was created.
    pub created: Timestamp,
    /// Its priority.
    pub priority: i32,
    /// Its priority class.
    pub priority_class: Option<String>,
    /// Whether the scheduler places it as part of the `PodGroup` created for its group.
    pub in_pod_group: bool,
    /// Its stage.
    pub stage: PodStage,
    /// The fabric chosen for it: an annotation of a gated pod, the node affinity of a
    /// released one.
    pub chosen: Option<String>,
    /// The domains of levels that were chosen for it, likewise, nearest level first.
    pub domains: Vec<LevelDomain>,
    /// The levels that its group asks for.
    pub levels: LevelRequests,
    /// The number of pods of a slice, if the group has slices.
    pub domain_size: Option<usize>,
    /// Its slice: the UID of its controller, and a number.
    pub slice: Option<(Box<str>, usize)>,
    /// Whether it is marked for eviction because its job moves.
    pub moves: bool,
    /// Whether a controller creates it again.
    pub is_controlled: bool,
    /// Whether the scheduler has found no node for it.
    pub is_unschedulable: bool,
    /// Whether its condition says that it waits for a fabric.
    pub has_waiting_condition: bool,
    /// Scheduling gates of other controllers.
    pub other_gates: Vec<String>,
    /// Names of the claims that were created for it.
    pub claims: Vec<String>,
    /// What it asks of a node, without the fabric and domains that were chosen for it.
    pub ask: Arc<Ask>,
    /// The object that defines the size of the group.
    pub owner: Option<Owner>,
    /// What people call its group: a kind and a name.
    pub job: JobName,
    /// The size of the group according to the pod itself.
    pub said_size: Option<usize>,
    /// The seconds after which its group goes to a fabric that can grow, if no other has room.
    pub said_wait: Option<u32>,
}

impl Member {
    /// Reads a pod; `None` if it belongs to no group.
    pub fn new(pod: &Pod) -> Option<(GroupKey, Self)> {
        let metadata = &pod.metadata;
        let annotations = metadata.annotations.as_ref()?;
        let asked = annotations.get(annotation::FABRIC)?;
        let group = metadata.labels.as_ref()?.get(label::FABRIC_GROUP)?;
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if metadata.deletion_timestamp.is_some() || phase == Some("Failed") {
            return None;
        }
        let gates = spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str());
        let (ours, others): (Vec<_>, Vec<_>) = gates.partition(|name| *name == GATE_FABRIC);
        let in_pod_group = is_in_pod_group(pod);
        let stage = match (&spec.node_name, phase) {
            (_, Some("Succeeded")) => PodStage::Succeeded,
            (Some(node), _) => PodStage::Bound(node.clone()),
            (None, _) if ours.is_empty() && !in_pod_group => PodStage::Released,
            (None, _) => PodStage::Gated,
        };
        let (chosen, domains) = match stage {
            PodStage::Gated => marked(annotations.get(annotation::FABRIC_CHOSEN)),
            _ => (affinity(pod, label::NODE_FABRIC), domains(pod)),
        };
        let is_free = stage != PodStage::Gated;
        let mut ask = Ask::of_kind(pod);
        if is_free {
            let fabric = chosen.as_deref().map(|fabric| (label::NODE_FABRIC, fabric));
            let domains = domains.iter().map(|domain| (domain.level.label(), &*domain.name));
            for (key, value) in fabric.into_iter().chain(domains) {
                ask = ask.without_label(key, value);
            }
        }
        let levels = annotations.get(annotation::FABRIC_LEVEL);
        let domain_size = annotations.get(annotation::DOMAIN_SIZE).and_then(|it| it.parse().ok());
        let domain_size = domain_size.filter(|size| *size > 0);
        let owner = Owner::new(pod, asked);
        let member = Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            version: metadata.resource_version.clone()?,
            created: metadata.creation_timestamp.as_ref()?.0,
            priority: spec.priority.unwrap_or_default(),
            priority_class: spec.priority_class_name.clone(),
            in_pod_group,
            moves: annotations.contains_key(annotation::FABRIC_MOVES),
            is_controlled: controller(pod).is_some(),
            is_unschedulable: has_condition(pod, |it| {
                it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable")
            }),
            has_waiting_condition: has_condition(pod, |it| {
                it.type_ == CONDITION_FABRIC && it.status == "False"
            }),
            other_gates: others.into_iter().map(str::to_owned).collect(),
            claims: made_claims(pod),
            ask: Arc::new(ask),
            levels: levels.and_then(|value| LevelRequests::parse(value).ok()).unwrap_or_default(),
            slice: domain_size.and_then(|size| slice(pod, size)),
            domain_size,
            domains,
            job: JobName::new(pod, asked, owner.as_ref()),
            owner,
            said_size: annotations.get(annotation::FABRIC_SIZE).and_then(|it| it.parse().ok()),
            said_wait: annotations.get(annotation::FABRIC_WAIT).and_then(|it| it.parse().ok()),
            stage,
            chosen,
        };
        let key = GroupKey {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            label: group.clone(),
        };
        Some((key, member))
    }

    /// Whether its gate has been removed.
    pub fn is_released(&self) -> bool {
        matches!(self.stage, PodStage::Released | PodStage::Bound(_))
    }

    /// Whether it has its gate, or the scheduler has found no node for it.
    pub fn is_waiting(&self) -> bool {
        match self.stage {
            PodStage::Gated => true,
            PodStage::Released => self.is_unschedulable,
            PodStage::Bound(_) | PodStage::Succeeded => false,
        }
    }

    /// The domain of a level that was chosen for it.
    pub(crate) fn chosen_domain(&self, level: FabricLevel) -> Option<&LevelDomain> {
        self.domains.iter().find(|domain| domain.level == level)
    }

    /// The domain that it is in: that of its node now, which may have changed since it was placed,
    /// otherwise the one that it goes to.
    fn domain<'m>(&'m self, level: FabricLevel, view: &'m ClusterView) -> Option<&'m str> {
        let now = match &self.stage {
            PodStage::Bound(node) => view.node_label(node, level.label()),
            _ => None,
        };
        now.or_else(|| Some(&*self.chosen_domain(level)?.name))
    }

    /// Whether the view has allocations for all its claims.
    pub fn has_devices(&self, namespace: &str, view: &ClusterView) -> bool {
        are_allocated(&self.claims, namespace, view)
    }
}

/// The fabric and the domains that a gated pod is marked with.
fn marked(value: Option<&String>) -> (Option<String>, Vec<LevelDomain>) {
    let Some(value) = value else { return (None, Vec::new()) };
    let (fabric, domains) = chosen::parse(value);
    (Some(fabric.to_owned()), domains)
}

/// The slice of a pod: its controller, and its index there by the size of slices.
fn slice(pod: &Pod, size: usize) -> Option<(Box<str>, usize)> {
    let index: usize =
        job_label::INDICES.iter().find_map(|key| label_or_annotation(pod, key)?.parse().ok())?;
    let uid = controller(pod).map(|owner| owner.uid.as_str()).unwrap_or_default();
    Some((uid.into(), index / size))
}

/// The domains of levels that the pod's node affinity requires.
fn domains(pod: &Pod) -> Vec<LevelDomain> {
    FabricLevel::ALL
        .into_iter()
        .filter_map(|level| Some(LevelDomain { level, name: affinity(pod, level.label())? }))
        .collect()
}

/// The single value of this label that every term of the pod's node affinity requires.
fn affinity(pod: &Pod, key: &str) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fabrics = required.node_selector_terms.iter().map(|term| {
        let expressions = term.match_expressions.iter().flatten();
        let mut of_key = expressions.filter(|it| it.key == key);
        of_key.find_map(|it| match (&*it.operator, it.values.as_deref()) {
            ("In", Some([fabric])) => Some(fabric.clone()),
            _ => None,
        })
    });
    let first = fabrics.next()??;
    fabrics.all(|fabric| fabric.as_ref() == Some(&first)).then_some(first)
}

fn has_condition(pod: &Pod, is_it: impl Fn(&PodCondition) -> bool) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(is_it)
}

/// The pods of one job.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its identity.
    pub key: GroupKey,
    /// Its pods, by name.
    pub members: Vec<Member>,
    /// Its size, if known.
    pub size: Option<Size>,
    /// True if the last round gave up on the expressions of its claims. It comes last.
    pub is_expensive: bool,
}

impl Group {
    /// What people call it, for example `Job default/big`.
    pub fn title(&self) -> String {
        match self.members.first() {
            Some(first) => first.job.in_namespace(&self.key.namespace),
            None => self.key.to_string(),
        }
    }

    /// Its gated pods.
    pub fn gated(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter().filter(|member| member.stage == PodStage::Gated)
    }

    /// Whether any of its pods is gated.
    pub fn has_gated(&self) -> bool {
        self.gated().next().is_some()
    }

    /// Whether it waits and its volumes matter.
    pub fn waits_with_volumes(&self) -> bool {
        self.gated().any(|member| member.ask.has_volumes())
    }

    /// When the first of its gated pods was created.
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.gated().map(|member| member.created).min()
    }

    /// Whether any of its pods is without the gate.
    pub fn has_released(&self) -> bool {
        self.released().next().is_some()
    }

    /// Its size according to its pods.
    pub fn said_size(&self) -> Option<Size> {
        self.members.iter().filter_map(|member| member.said_size).max().map(Size::all_at_once)
    }

    /// Its pods without the gate.
    pub fn released(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter().filter(|member| member.is_released())
    }

    /// Its pods that wait: with the gate, or without it and the scheduler has found no node.
    pub fn waiting(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter().filter(|member| member.is_waiting())
    }

    /// Pods that exist, plus those that have ended and are not created again. For a Job,
    /// the latter do not count, as its size does not include them.
    pub fn present(&self) -> usize {
        let present = self.members.iter().filter(|member| {
            member.stage != PodStage::Succeeded
                || member.owner.as_ref().is_none_or(|owner| owner.kind != "Job")
        });
        present.count()
    }

    /// Whether the scheduler places it as the `PodGroup` created for it.
    pub fn is_pod_group(&self) -> bool {
        self.members.iter().any(|member| member.in_pod_group)
    }

    /// Whether there is anything to decide: not if the whole group runs.
    pub fn is_open(&self) -> bool {
        self.members.iter().any(|member| match member.stage {
            PodStage::Gated | PodStage::Released => true,
            PodStage::Bound(_) => member.moves,
            PodStage::Succeeded => false,
        })
    }

    /// Whether pods wait or are being scheduled, or a condition still says that they wait.
    pub fn is_unfinished(&self) -> bool {
        self.is_open() || self.members.iter().any(|member| member.has_waiting_condition)
    }

    /// The fabric of most of its released pods: by their nodes, or if none has a node, by
    /// their affinities. `fabric_of` returns the fabric of a node.
    pub fn fabric(&self, fabric_of: impl Fn(&str) -> Option<String>) -> Option<String> {
        let bound = self.released().filter_map(|member| match &member.stage {
            PodStage::Bound(node) => fabric_of(node),
            _ => None,
        });
        most(bound).or_else(|| most(self.released().filter_map(|member| member.chosen.clone())))
    }

    /// The chosen fabric, if all gated pods that have one agree.
    pub fn reserved(&self) -> Option<&str> {
        let mut chosen = self.gated().filter_map(|member| member.chosen.as_deref());
        let first = chosen.next()?;
        chosen.all(|other| other == first).then_some(first)
    }

    /// The levels that its pods ask for.
    pub fn levels(&self) -> &LevelRequests {
        static NONE: LevelRequests = LevelRequests::NONE;
        let asked = self.members.iter().map(|member| &member.levels);
        asked.into_iter().find(|levels| !levels.is_empty()).unwrap_or(&NONE)
    }

    /// Whether its pods, or those of a slice, must share a domain of a level.
    pub fn requires_domains(&self) -> bool {
        self.levels().required().next().is_some()
    }

    /// The number of pods of each of its slices, if it has slices.
    pub fn domain_size(&self) -> Option<usize> {
        self.members.iter().find_map(|member| member.domain_size)
    }

    /// How many pods a slice has, with those that do not exist yet. The last one may be smaller than the
    /// others.
    pub(crate) fn slice_pods(&self, slice: Option<&(Box<str>, usize)>, size: usize) -> usize {
        let exist = self.members.iter().filter(|member| member.slice.as_ref() == slice).count();
        let to_come = self.size.map(|size| size.pods.saturating_sub(self.present()));
        size.min(to_come.map_or(size, |to_come| exist.saturating_add(to_come)))
    }

    /// Whether two of its pods must share a domain of a required level. Slices share one of the
    /// nearest level, and all pods one of the others.
    pub fn share_domain(&self, level: FabricLevel, one: &Member, other: &Member) -> bool {
        let is_of_slices = self.domain_size().is_some() && self.levels().nearest() == Some(level);
        !is_of_slices || one.slice == other.slice
    }

    /// The domains of required levels that this pod must share with pods without a gate: those of
    /// most of them.
    pub fn homes(&self, pod: &Member, view: &ClusterView) -> Vec<LevelDomain> {
        self.levels()
            .required()
            .filter_map(|level| {
                let mates = self.released().filter(|mate| self.share_domain(level, pod, mate));
                let name = most(mates.filter_map(|mate| mate.domain(level, view)))?.to_owned();
                Some(LevelDomain { level, name })
            })
            .collect()
    }

    /// When it goes to a fabric that can grow, if no other has room by then.
    pub fn grows_at(&self) -> Option<Timestamp> {
        let wait = self.members.iter().filter_map(|member| member.said_wait).min()?;
        Some(later(self.waits_since()?, SignedDuration::from_secs(wait.into())))
    }

    /// Sort key: groups that waste time last, then highest priority first, then the creation time of
    /// the first gated pod.
    pub fn rank(&self) -> (bool, std::cmp::Reverse<i32>, Option<Timestamp>) {
        let priority = self.members.iter().map(|member| member.priority).max().unwrap_or_default();
        (self.is_expensive, std::cmp::Reverse(priority), self.waits_since())
    }
}

/// The time this long after another.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The name that most of them are.
fn most<N: Ord>(names: impl Iterator<Item = N>) -> Option<N> {
    let mut counts: BTreeMap<N, usize> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    // The first one by name wins ties, so that every replica decides the same.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(name, _)| name)
}
