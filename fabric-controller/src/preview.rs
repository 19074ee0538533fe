//! Previews where a group of pods would be placed now: one that the user has not created yet, or one
//! whose pods wait.

use super::capacity::ClusterCapacity;
use super::decide::{Action, Decision, PlacementPolicy, decide};
use super::group::{Group, GroupKey, Member};
use super::group_pods::GroupPods;
use super::size::{SAME, Size};
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::annotation;
use cluster_model::predict::budget;
use cluster_model::room::Nodes;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The size of the group; the number of pods that are asked about if nobody says the size.
    pub size: usize,
    /// Whether nobody says the size, so that each pod is placed as soon as it exists.
    pub is_one_by_one: bool,
    /// For each fabric, how many of the pods fit there now, considered alone.
    pub places: Vec<(String, usize)>,
    /// The fabric that the group would get, or why it would wait.
    pub answer: Result<String, String>,
    /// The domains of levels that it would get there, and how many of its pods.
    pub domains: BTreeMap<LevelDomain, usize>,
}

/// A group of the cluster for which something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPreview {
    /// The group.
    pub key: GroupKey,
    /// Its job, for people.
    pub job: String,
    /// The number of its pods that wait.
    pub pods: usize,
    /// For each fabric, how many of its pods fit there now, considered alone.
    pub places: Vec<(String, usize)>,
    /// The fabric that it gets next, or why it waits.
    pub answer: Result<String, String>,
}

/// A group among the others, whose placement is previewed.
#[derive(Clone, Debug)]
pub struct GroupPreview {
    groups: Vec<Group>,
    key: GroupKey,
    /// The names of the pods that must get a place.
    waiting: BTreeSet<String>,
    /// One of them.
    member: Member,
    /// How many pods are asked about.
    size: usize,
    /// Whether nobody says the size of the group.
    is_one_by_one: bool,
}

impl GroupPreview {
    /// The group of a pod that admission has rewritten and that does not exist yet. `job_size` is the
    /// number of pods of its job, if that is known; `created` is how many pods of the group are created:
    /// `None` supposes the whole group. `None` if the pod belongs to no group.
    pub fn planned(
        pod: &Value,
        (job_size, created): (Option<u64>, Option<usize>),
        pods: &GroupPods,
        now: Timestamp,
    ) -> Option<Self> {
        let named = as_created(pod, now)?;
        let (key, member) = Member::new(&named)?;
        let mut groups = known(pods);
        let known = groups.iter().position(|known| known.key == key);
        let exist = known.map(|index| groups.swap_remove(index).members).unwrap_or_default();
        let job_size = job_size.and_then(|size| usize::try_from(size).ok());
        // A named group may have pods of several jobs.
        let is_job = pod["metadata"]["annotations"][annotation::FABRIC] == SAME;
        let size = member.said_size.or_else(|| job_size.filter(|_| is_job));
        let present = Group { key: key.clone(), members: exist, size: None, is_expensive: false };
        let new = match (size, created) {
            // The controller sees the pods one after another.
            (None, _) => 1,
            (Some(_), Some(created)) => created,
            (Some(size), None) => size.saturating_sub(present.present()).max(1),
        };
        let new: Vec<Member> = (0..new).map(|number| numbered(&member, number)).collect();
        let waiting = new.iter().map(|member| member.name.clone()).collect();
        let members = present.members.into_iter().chain(new).collect();
        groups.push(Group {
            key: key.clone(),
            members,
            size: size.map(|pods| Size { pods, at_once: true }),
            is_expensive: false,
        });
        let is_one_by_one = size.is_none();
        let size = size.or(job_size).unwrap_or(1);
        Some(Self { groups, key, waiting, member, size, is_one_by_one })
    }

    /// The group of a pod that exists and waits; `None` if it waits for no fabric. Its size is what its
    /// pods say: jobs are not read.
    pub fn existing(pod: &Pod, pods: &GroupPods) -> Option<Self> {
        let (key, member) = Member::new(pod)?;
        let groups = known(pods);
        let own = groups.iter().find(|group| group.key == key)?;
        let waiting: BTreeSet<String> = own.gated().map(|member| member.name.clone()).collect();
        let size = waiting.len();
        waiting.contains(&member.name).then_some(Self {
            groups,
            key,
            waiting,
            member,
            size,
            is_one_by_one: false,
        })
    }

    /// The fabric that the waiting pods would get, or why they would wait.
    ///
    /// # Errors
    /// Returns the reason.
    pub fn answer(
        &self,
        view: &ClusterView,
        nodes: &Nodes,
        now: Timestamp,
    ) -> Result<String, String> {
        self.answer_of(self.decision(view, nodes, now))
    }

    /// The whole preview.
    pub fn preview(&self, view: &ClusterView, nodes: &Nodes, now: Timestamp) -> Preview {
        let places = places(Some(&self.member), view, nodes);
        let decision = self.decision(view, nodes, now);
        Preview {
            size: self.size,
            is_one_by_one: self.is_one_by_one,
            places,
            domains: decision.as_ref().map(|it| domains(&it.action)).unwrap_or_default(),
            answer: self.answer_of(decision),
        }
    }

    /// All groups of the cluster that wait, and those that are moved.
    pub fn waiting(
        pods: &GroupPods,
        view: &ClusterView,
        nodes: &Nodes,
        now: Timestamp,
    ) -> Vec<WaitingPreview> {
        let groups = known(pods);
        let budget = budget(view);
        let cluster = ClusterCapacity::new(view, nodes, &budget);
        let decisions = decide(&groups, cluster, &PlacementPolicy::default(), now);
        let waiting = groups.iter().filter_map(|group| {
            let decision = decisions.iter().find(|it| it.group == group.key);
            // The scheduler is placing the others, or nothing that this program knows keeps them.
            (group.has_gated() || decision.is_some()).then(|| WaitingPreview {
                key: group.key.clone(),
                job: group.title(),
                pods: group.waiting().count(),
                places: places(group.waiting().next(), view, nodes),
                answer: answer(decision.map(|it| &it.action)),
            })
        });
        waiting.collect()
    }

    /// The pods of the group by namespace and name that exist already.
    pub fn has_member(&self, namespace: &str, name: &str) -> bool {
        let own = self.groups.iter().filter(|group| group.key == self.key);
        self.key.namespace == namespace
            && own.flat_map(|group| &group.members).any(|member| member.name == name)
    }

    fn decision(&self, view: &ClusterView, nodes: &Nodes, now: Timestamp) -> Option<Decision> {
        let budget = budget(view);
        let cluster = ClusterCapacity::new(view, nodes, &budget);
        let decisions = decide(&self.groups, cluster, &PlacementPolicy::default(), now);
        decisions.into_iter().find(|decision| decision.group == self.key)
    }

    fn answer_of(&self, decision: Option<Decision>) -> Result<String, String> {
        match decision.map(|decision| decision.action) {
            Some(Action::Place { pods, rest: Some(why), .. })
                if !self.waiting.iter().all(|name| pods.contains(name)) =>
            {
                Err(why.to_string())
            }
            action => answer(action.as_ref()),
        }
    }
}

/// The groups of the cluster, with the sizes that their pods say: jobs are not read.
pub fn known(pods: &GroupPods) -> Vec<Group> {
    let mut groups = pods.groups();
    for group in &mut groups {
        group.size = group.said_size();
    }
    groups
}

/// The fabric that a group gets, or why it waits.
fn answer(action: Option<&Action>) -> Result<String, String> {
    match action {
        Some(Action::Place { fabric, .. }) => Ok(fabric.clone()),
        Some(Action::Wait(why)) => Err(why.to_string()),
        Some(Action::Evict { .. }) => Err("its pods are evicted, to move together".to_owned()),
        None => Err("nothing is decided on it".to_owned()),
    }
}

/// How many pods like this one fit on each fabric.
fn places(member: Option<&Member>, view: &ClusterView, nodes: &Nodes) -> Vec<(String, usize)> {
    let Some(member) = member else { return Vec::new() };
    let budget = budget(view);
    let mut cluster = ClusterCapacity::new(view, nodes, &budget);
    let places = cluster.fabrics_mut().map(|(name, it)| (name.clone(), it.count(&member.ask)));
    places.collect()
}

/// The pod with what the API server would fill in.
fn as_created(pod: &Value, now: Timestamp) -> Option<Pod> {
    let mut pod = pod.clone();
    let metadata = pod["metadata"].as_object_mut()?;
    metadata.entry("namespace").or_insert_with(|| "default".into());
    metadata.insert("uid".to_owned(), "planned".into());
    metadata.insert("resourceVersion".to_owned(), "0".into());
    metadata.insert("creationTimestamp".to_owned(), now.to_string().into());
    let typed: Pod = serde_json::from_value(pod).ok()?;
    let name = typed.metadata.name.clone().or_else(|| Some("planned".to_owned()));
    Some(Pod { metadata: ObjectMeta { name, ..typed.metadata }, ..typed })
}

/// A member for the pod with this number.
fn numbered(member: &Member, number: usize) -> Member {
    Member {
        name: format!("{}-{number}", member.name),
        slice: member.domain_size.map(|of_slice| ("".into(), number / of_slice)),
        ..member.clone()
    }
}

/// The domains that pods go to, and how many go to each.
fn domains(action: &Action) -> BTreeMap<LevelDomain, usize> {
    let mut counts = BTreeMap::new();
    if let Action::Place { domains, .. } = action {
        for domain in domains.values().flatten() {
            *counts.entry(domain.clone()).or_default() += 1;
        }
    }
    counts
}
