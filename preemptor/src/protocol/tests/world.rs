//! A cluster of one node on which pods get devices: one that is free, and those of victims.

use super::super::record::Begun;
use super::super::rules::{read, rules_of};
use super::super::step::{
    End, Keep, Limits, Next, PodSeen, RoomSeen, Seen, VictimSeen, Write, step,
};
use crate::{PlacedClaim, Placement, PodId, Preemption, Victim, VictimPod};
use cluster_model::view::ObjectKey;
use dra_allocator::{ClaimAllocation, DeviceId, DeviceResult};
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

const NODE: &str = "node";
const LIMITS: Limits = Limits {
    keep: Keep::Allocation,
    settle: SignedDuration::from_secs(2),
    refused_within: SignedDuration::from_secs(60),
    freed_within: SignedDuration::from_secs(600),
    bound_within: SignedDuration::from_secs(300),
};

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// A replica takes steps, and dies after this number of writes.
    Round(Option<usize>),
    /// Seconds pass.
    Tick(i64),
    /// Time passes until a limit is reached.
    Later,
    /// A victim that was evicted ends.
    VictimEnds(usize),
    /// A victim ends by itself.
    VictimLeaves(usize),
    /// kube-scheduler binds pods that have their devices.
    Schedule,
    /// A pod is deleted.
    PodGone(usize),
    /// A pod gets another node.
    Elsewhere(usize),
    /// Whether a budget refuses evictions.
    Budget(bool),
    /// Another pod takes the free device, if it is not kept.
    Stranger,
    /// The node is deleted.
    NodeGone,
    /// Somebody deletes a rule.
    RuleGone(usize),
    /// A replica has decided on its writes, and stops before the first one.
    Pause,
    /// It goes on, although another replica leads.
    Resume,
}

/// The state in the API, and what was done.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) limits: Limits,
    now: i64,
    decided: Preemption,
    pub(super) rules: BTreeMap<String, DeviceTaintRule>,
    pods: Vec<PodSeen>,
    victims: Vec<VictimSeen>,
    evicted: BTreeSet<usize>,
    /// Who has the free device.
    stranger: Option<&'static str>,
    has_node: bool,
    refuses: bool,
    has_begun: bool,
    /// The victims that a paused replica is about to evict.
    paused: Vec<usize>,
    /// What must never happen.
    pub(super) faults: Vec<&'static str>,
    pub(super) ends: Vec<End>,
}

/// The writes that a replica makes until it dies.
struct Writes(Option<usize>);

impl Writes {
    /// Whether it lives for one more write.
    fn one(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "team".to_owned(), name: name.to_owned() }
}

fn pod_id(name: &str) -> PodId {
    PodId { key: key(name), uid: format!("uid-{name}") }
}

fn device(name: &str) -> DeviceId {
    DeviceId { driver: "gpu".into(), pool: NODE.into(), device: name.into() }
}

fn result(name: &str) -> DeviceResult {
    DeviceResult {
        request: "r".into(),
        device: device(name),
        admin_access: false,
        tolerations: Vec::new(),
        is_share: false,
        consumed_capacity: Vec::new(),
        binding_conditions: Vec::new(),
        binding_failure_conditions: Vec::new(),
        skip_node_operations: Vec::new(),
    }
}

/// The first pod gets the free device and those of all victims; each other pod, one more.
fn decided(pods: usize, victims: usize) -> Preemption {
    let placement = |pod: usize| {
        let of_victims = (0..victims).map(|victim| format!("v{victim}")).collect::<Vec<_>>();
        let devices = if pod == 0 {
            ["free".to_owned()].into_iter().chain(of_victims).collect()
        } else {
            vec![format!("more{pod}")]
        };
        let results = devices.iter().map(|name| result(name)).collect();
        let allocation = ClaimAllocation { results, config: Vec::new(), node_selector: None };
        let name = format!("high-{pod}");
        let claims = vec![PlacedClaim { claim: key(&name), allocation }];
        Placement { pod: pod_id(&name), node: NODE.to_owned(), domains: Vec::new(), claims }
    };
    let victim = |index: usize| Victim {
        job: None,
        pods: vec![VictimPod {
            pod: pod_id(&format!("low-{index}")),
            node: NODE.to_owned(),
            priority: 0,
            violates: None,
        }],
    };
    Preemption {
        priority: 1000,
        fabric: None,
        placements: (0..pods).map(placement).collect(),
        victims: (0..victims).map(victim).collect(),
        kept: (0..victims).map(|index| device(&format!("v{index}"))).collect(),
        freed: Vec::new(),
        moves: false,
    }
}

impl World {
    pub(super) fn new(pods: usize, victims: usize) -> Self {
        Self {
            limits: LIMITS,
            now: 1_000,
            decided: decided(pods, victims),
            rules: BTreeMap::new(),
            pods: vec![PodSeen::Waits { allocated: None }; pods],
            victims: vec![VictimSeen::Runs; victims],
            evicted: BTreeSet::new(),
            stranger: None,
            has_node: true,
            refuses: false,
            has_begun: false,
            paused: Vec::new(),
            faults: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// All that the next steps depend on. Times are ages, which only [`Trouble::Later`] changes.
    pub(super) fn state(&self) -> String {
        let rules: Vec<_> = self.rules.keys().collect();
        // Without the time of day, of which the ages are.
        let pods: Vec<_> = self.pods.iter().map(|pod| format!("{pod:?}")).collect();
        let pods: Vec<_> = pods.iter().map(|pod| pod.split('T').next()).collect();
        let rest = (self.stranger, self.has_node, self.refuses, self.has_begun);
        let said = (self.has_said_stop(), self.ends.is_empty(), &self.faults);
        let Self { victims, evicted, paused, .. } = self;
        let ages = self.ages();
        format!("{rules:?} {pods:?} {victims:?} {evicted:?} {rest:?} {paused:?} {said:?} {ages:?}")
    }

    /// How long ago the head was created, and each pod got its devices.
    fn ages(&self) -> Vec<i64> {
        let heads = self.rules.values().filter(|rule| rule.metadata.annotations.is_some());
        let heads = heads.filter_map(|rule| Some(rule.metadata.creation_timestamp.as_ref()?.0));
        let allocated = self.pods.iter().filter_map(|pod| match pod {
            PodSeen::Waits { allocated } => *allocated,
            PodSeen::Gone | PodSeen::Bound(_) => None,
        });
        heads.chain(allocated).map(|at| self.now - at.as_second()).collect()
    }

    /// Time passes until a limit is reached.
    fn later(&mut self) {
        let Limits { settle, refused_within, freed_within, bound_within, .. } = LIMITS;
        let limits = [settle, refused_within, freed_within, bound_within];
        let ages = self.ages();
        let left = ages.iter().flat_map(|age| limits.map(|limit| limit.as_secs() - age));
        self.now += left.filter(|left| *left > 0).min().unwrap_or_default();
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now).unwrap()
    }

    /// The victims that were evicted.
    pub(super) fn evicted(&self) -> &BTreeSet<usize> {
        &self.evicted
    }

    /// Another pod has the free device.
    pub(super) fn hold_free(&mut self, who: &'static str) {
        self.stranger = Some(who);
    }

    pub(super) fn is_bound(&self) -> bool {
        self.pods.iter().all(|pod| *pod == PodSeen::Bound(NODE.to_owned()))
    }

    pub(super) fn has_said_stop(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, End::Stopped(_)))
    }

    pub(super) fn happen(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Round(writes) => self.round(*writes),
            Trouble::Tick(seconds) => self.now += seconds,
            Trouble::Later => self.later(),
            Trouble::VictimEnds(index) => self.end_victim(*index, VictimSeen::Ends),
            Trouble::VictimLeaves(index) => self.end_victim(*index, VictimSeen::Runs),
            Trouble::Schedule => self.schedule(),
            Trouble::PodGone(index) => self.replace_waiting(*index, PodSeen::Gone),
            Trouble::Elsewhere(index) => {
                self.replace_waiting(*index, PodSeen::Bound("other".to_owned()));
            }
            Trouble::Budget(refuses) => self.refuses = *refuses,
            Trouble::Stranger => {
                let kept = |rule: &DeviceTaintRule| {
                    let selector = rule.spec.device_selector.as_ref();
                    selector.and_then(|it| it.device.as_deref()) == Some("free")
                };
                let is_taken = self.pods[0] != PodSeen::Waits { allocated: None };
                if !self.rules.values().any(kept) && !is_taken {
                    self.stranger = Some("stranger");
                }
            }
            Trouble::NodeGone => self.has_node = false,
            Trouble::RuleGone(index) => {
                // Without the head nobody knows who was evicted.
                let others = self.rules.iter().filter(|(_, it)| it.metadata.annotations.is_none());
                let name = others.map(|(name, _)| name.clone()).nth(*index);
                name.and_then(|name| self.rules.remove(&name));
            }
            Trouble::Pause => self.pause(),
            Trouble::Resume => {
                for victim in std::mem::take(&mut self.paused) {
                    self.evict(victim);
                }
            }
        }
    }

    fn pause(&mut self) {
        let rules: Vec<_> = self.rules.values().cloned().collect();
        if let [begun] = &read(&rules).begun[..] {
            let writes = self.next(begun).writes;
            self.paused = writes.iter().filter_map(Write::victim).collect();
        }
    }

    fn next(&self, begun: &Begun) -> Next {
        let seen =
            Seen { pods: self.pods.clone(), victims: self.victims.clone(), room: self.room() };
        step(begun, &seen, &self.limits, self.time())
    }

    fn end_victim(&mut self, index: usize, from: VictimSeen) {
        if let Some(victim) = self.victims.get_mut(index).filter(|victim| **victim == from) {
            *victim = VictimSeen::Gone;
        }
    }

    fn replace_waiting(&mut self, index: usize, by: PodSeen) {
        let waits = |pod: &&mut PodSeen| matches!(pod, PodSeen::Waits { .. });
        if let Some(pod) = self.pods.get_mut(index).filter(waits) {
            *pod = by;
        }
    }

    fn schedule(&mut self) {
        let has_node = self.has_node;
        for pod in &mut self.pods {
            if matches!(pod, PodSeen::Waits { allocated: Some(_) }) && has_node {
                *pod = PodSeen::Bound(NODE.to_owned());
            }
        }
    }

    /// Time passes, victims end, kube-scheduler binds, and a replica works until nothing is left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..80 {
            self.round(None);
            self.now += 10;
            (0..self.victims.len()).for_each(|index| self.end_victim(index, VictimSeen::Ends));
            self.schedule();
            if self.has_begun && self.rules.is_empty() {
                return;
            }
        }
    }

    /// What a replica does in a round, until it dies.
    pub(super) fn round(&mut self, writes: Option<usize>) {
        let mut writes = Writes(writes);
        let rules: Vec<_> = self.rules.values().cloned().collect();
        let read = read(&rules);
        if !self.remove(&read.stray, &mut writes) {
            return;
        }
        match &read.begun[..] {
            [] => self.begin(&mut writes),
            [begun] => self.go_on(begun, &mut writes),
            more => panic!("{} preemptions have begun", more.len()),
        }
    }

    fn begin(&mut self, writes: &mut Writes) {
        let waits = self.pods.iter().all(|pod| *pod == PodSeen::Waits { allocated: None });
        if self.has_begun || !waits || self.room() == RoomSeen::No(String::new()) {
            return;
        }
        let rules = rules_of(&self.decided).unwrap();
        let last = rules.len() - 1;
        for (index, mut rule) in rules.into_iter().enumerate() {
            if !writes.one() {
                return;
            }
            rule.metadata.creation_timestamp = Some(Time(self.time()));
            self.rules.insert(rule.metadata.name.clone().unwrap(), rule);
            self.has_begun = index == last;
        }
    }

    fn go_on(&mut self, begun: &Begun, writes: &mut Writes) {
        let Next { writes: due, end, at: _ } = self.next(begun);
        for write in due {
            if !self.write(begun, write, writes) {
                return;
            }
        }
        if let Some(end) = end {
            self.ends.push(end);
            self.remove(&begun.removal(), writes);
        }
    }

    /// Returns false if the replica dies.
    fn write(&mut self, begun: &Begun, write: Write, writes: &mut Writes) -> bool {
        if !writes.one() {
            return false;
        }
        match write {
            Write::Evict(index) => {
                let age = self.time().duration_since(begun.since);
                self.check(begun.is_whole(), "evicted without rules");
                self.check(age >= self.limits.settle, "evicted before the rules are seen");
                self.check(!self.evicted.contains(&index), "evicted twice");
                self.evict(index);
            }
            Write::Allocate(index) => {
                let waits = self.pods[index] == PodSeen::Waits { allocated: None };
                self.check(waits, "allocated twice");
                let are_gone = self.victims.iter().all(|it| *it == VictimSeen::Gone);
                self.check(are_gone, "allocated what others hold");
                self.pods[index] = PodSeen::Waits { allocated: Some(self.time()) };
            }
        }
        true
    }

    /// The API server evicts the pod with this UID, unless a budget refuses.
    fn evict(&mut self, index: usize) {
        if self.refuses || self.victims[index] != VictimSeen::Runs {
            return;
        }
        self.check(!self.pods.contains(&PodSeen::Gone), "evicted for a pod that is gone");
        self.evicted.insert(index);
        self.victims[index] = VictimSeen::Ends;
    }

    fn check(&mut self, holds: bool, fault: &'static str) {
        if !holds {
            self.faults.push(fault);
        }
    }

    /// Returns false if the replica dies.
    fn remove(&mut self, rules: &[String], writes: &mut Writes) -> bool {
        rules.iter().all(|name| {
            let lives = writes.one();
            if lives {
                self.rules.remove(name);
            }
            lives
        })
    }

    fn room(&self) -> RoomSeen {
        if !self.has_node || self.stranger.is_some() {
            return RoomSeen::No(String::new());
        }
        let is_free = self.victims.iter().all(|victim| *victim == VictimSeen::Gone);
        if is_free { RoomSeen::Now } else { RoomSeen::Later }
    }
}
