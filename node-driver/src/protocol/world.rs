//! A node with its kubelet, runtime and pods, of which several want one adapter, one after the other.

use super::claims::files_of_claims;
use super::files::Entry;
use super::mistakes::Mistake;
use super::node::{ADAPTER, Node, State};
use crate::kernel::attach::played::{Adapter, Interfaces, Number, Place};
use crate::prepare::local::LocalPreparer;
use std::mem;

/// The claim that comes after all others.
pub(super) const LAST: usize = 9;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// The driver starts: it repairs, and takes over what it finds.
    Start,
    /// The driver dies while it does nothing.
    Die,
    /// The driver repairs, as it does from time to time.
    Repair,
    /// The driver looks twice for claims that nobody unprepares.
    Search,
    /// The kubelet asks to prepare a claim.
    Prepare(usize),
    /// The kubelet asks to unprepare a claim.
    Unprepare(usize),
    /// The runtime makes a sandbox for a pod.
    RunSandbox(usize),
    /// The runtime starts a container.
    StartContainer(usize),
    /// The containers of a pod end.
    EndContainers(usize),
    /// A sandbox ends.
    StopSandbox(usize),
    /// A claim is deleted with its pods, perhaps by force; the next one gets the adapter.
    Delete(usize),
    /// The kubelet starts again.
    KubeletStarts,
    /// The kubelet loses what it knows of claims.
    KubeletForgets,
    /// The node boots again.
    Reboot,
    /// The kernel returns what was in a namespace that has ended.
    Arrive,
    /// The checkpoint is lost or torn while the driver does not run.
    LoseCheckpoint,
    TearCheckpoint,
}

/// What comes of something that happens.
pub(super) struct Outcome {
    /// If no process dies.
    pub(super) next: World,
    /// If one does, and before which step.
    pub(super) deaths: Vec<(String, World)>,
}

/// The deaths that are possible, if they are wanted.
pub(super) type Deaths<'a> = Option<&'a mut Vec<(String, World)>>;

/// A claim to the adapter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    /// Whether its object exists.
    pub(super) exists: bool,
    /// Whether the kubelet knows it, and will unprepare it.
    pub(super) is_known: bool,
    /// Whether the kubelet has its devices.
    pub(super) is_prepared: bool,
    /// What the first call has answered.
    pub(super) answer: Option<String>,
}

/// A pod with a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    pub(super) claim: usize,
    pub(super) sandbox: Option<Number>,
    pub(super) has_container: bool,
    /// Sandboxes so far.
    pub(super) made: usize,
}

/// How often these happen at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Odds {
    /// Sandboxes of a pod, one after the other.
    pub(super) sandboxes: usize,
    /// Boots.
    pub(super) boots: u8,
    /// Checkpoints that are lost or torn.
    pub(super) losses: u8,
    /// Losses of the kubelet's state.
    pub(super) forgets: u8,
}

/// Only what is usual: a pod has one sandbox.
pub(super) const USUAL: Odds = Odds { sandboxes: 1, boots: 0, losses: 0, forgets: 0 };

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) claims: Vec<Claim>,
    pub(super) pods: Vec<Pod>,
    pub(super) left: Odds,
    pub(super) mistake: Option<Mistake>,
}

/// The adapter's interface as the host has it.
pub(super) fn at_first() -> Adapter {
    Adapter {
        parent: ADAPTER,
        place: Place::Host,
        name: "rail0".into(),
        index: 3,
        mtu: 9000,
        addresses: vec!["10.1.0.1/24".parse().unwrap()],
        is_up: true,
    }
}

fn interfaces() -> Interfaces {
    Interfaces { adapters: vec![at_first()], ..Interfaces::default() }
}

impl Claim {
    pub(super) fn new() -> Self {
        Self { exists: true, is_known: false, is_prepared: false, answer: None }
    }
}

impl Pod {
    fn new(claim: usize) -> Self {
        Self { claim, sandbox: None, has_container: false, made: 0 }
    }

    /// Whether its last sandbox has ended.
    pub(super) fn is_over(&self, odds: Odds) -> bool {
        self.sandbox.is_none() && self.made == odds.sandboxes
    }
}

impl World {
    /// Pods with these claims.
    pub(super) fn new(claims: &[usize], left: Odds, mistake: Option<Mistake>) -> Self {
        let count = claims.iter().max().unwrap() + 1;
        let state = State { interfaces: interfaces(), ..State::default() };
        let pods = claims.iter().map(|claim| Pod::new(*claim)).collect();
        Self { state, claims: vec![Claim::new(); count], pods, left, mistake }
    }

    /// Everything that can happen to these pods and claims.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let mut all = vec![
            Trouble::Start,
            Trouble::Die,
            Trouble::Repair,
            Trouble::Search,
            Trouble::KubeletStarts,
            Trouble::KubeletForgets,
            Trouble::Reboot,
            Trouble::Arrive,
            Trouble::LoseCheckpoint,
            Trouble::TearCheckpoint,
        ];
        for claim in 0..self.claims.len() {
            all.extend([
                Trouble::Prepare(claim),
                Trouble::Unprepare(claim),
                Trouble::Delete(claim),
            ]);
        }
        for pod in 0..self.pods.len() {
            all.extend([
                Trouble::RunSandbox(pod),
                Trouble::StartContainer(pod),
                Trouble::EndContainers(pod),
                Trouble::StopSandbox(pod),
            ]);
        }
        all
    }

    /// The namespaces of all sandboxes.
    pub(super) fn namespaces(&self) -> Number {
        self.pods.len() * self.left.sandboxes
    }

    /// What has gone wrong.
    pub(super) fn faults(&self) -> &[&'static str] {
        &self.state.interfaces.faults
    }

    pub(super) fn fault(&mut self, fault: &'static str) {
        self.state.interfaces.faults.push(fault);
    }

    pub(super) fn adapter(&self) -> &Adapter {
        &self.state.interfaces.adapters[0]
    }

    pub(super) fn runs(&self) -> bool {
        self.state.driver.is_some()
    }

    pub(super) fn claim_of(&self, pod: usize) -> &Claim {
        &self.claims[self.pods[pod].claim]
    }

    /// Whether the scheduler has given the adapter to a claim: no earlier one exists.
    pub(super) fn is_allocated(&self, claim: usize) -> bool {
        self.claims[claim].exists && self.claims[..claim].iter().all(|earlier| !earlier.exists)
    }

    /// Whether several pods have the claim.
    pub(super) fn is_shared(&self, claim: usize) -> bool {
        self.pods.iter().filter(|pod| pod.claim == claim).count() > 1
    }

    fn has_sandbox(&self, claim: usize) -> bool {
        self.pods.iter().any(|pod| pod.claim == claim && pod.sandbox.is_some())
    }

    /// Whether this can happen now.
    pub(super) fn is_possible(&self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::Start => !self.runs(),
            Trouble::Die | Trouble::Repair | Trouble::Search => self.runs(),
            Trouble::Prepare(claim) => {
                self.runs() && self.is_allocated(claim) && !self.claims[claim].is_prepared
            }
            // The kubelet first stops the sandboxes.
            Trouble::Unprepare(claim) => {
                let Claim { exists, is_known, .. } = self.claims[claim];
                self.runs() && is_known && !exists && !self.has_sandbox(claim)
            }
            Trouble::RunSandbox(pod) => {
                let Pod { sandbox, made, .. } = self.pods[pod];
                let claim = self.claim_of(pod);
                claim.exists && claim.is_prepared && sandbox.is_none() && made < self.left.sandboxes
            }
            Trouble::StartContainer(pod) => {
                let claim = self.claim_of(pod);
                claim.exists && claim.is_prepared && self.pods[pod].sandbox.is_some()
            }
            Trouble::EndContainers(pod) => self.pods[pod].has_container,
            Trouble::StopSandbox(pod) => self.pods[pod].sandbox.is_some(),
            Trouble::Delete(claim) => self.is_allocated(claim),
            Trouble::KubeletStarts => self.claims.iter().any(|claim| claim.is_prepared),
            Trouble::KubeletForgets => {
                self.left.forgets > 0 && self.claims.iter().any(|claim| claim.is_known)
            }
            Trouble::Reboot => self.left.boots > 0,
            Trouble::Arrive => self.adapter().place == Place::Between,
            Trouble::LoseCheckpoint | Trouble::TearCheckpoint => {
                self.left.losses > 0 && !self.runs()
            }
        }
    }

    /// What is so afterwards, if no process dies; `None` if it cannot happen now.
    pub(super) fn next(&self, node: &mut Node, trouble: Trouble) -> Option<Self> {
        let mut next = self.is_possible(trouble).then(|| self.clone())?;
        next.happen(node, trouble, None);
        next.follow();
        Some(next)
    }

    /// All that can be so afterwards; `None` if it cannot happen now.
    pub(super) fn outcome(&self, node: &mut Node, trouble: Trouble) -> Option<Outcome> {
        let mut next = self.is_possible(trouble).then(|| self.clone())?;
        let mut deaths = Vec::new();
        next.happen(node, trouble, Some(&mut deaths));
        next.follow();
        for (_, world) in &mut deaths {
            world.follow();
        }
        Some(Outcome { next, deaths })
    }

    fn happen(&mut self, node: &mut Node, trouble: Trouble, deaths: Deaths<'_>) {
        match trouble {
            Trouble::Start => self.start(node, deaths),
            Trouble::Repair => drop(self.work(node, deaths, &LocalPreparer::reconcile)),
            Trouble::Search => self.search(node, deaths),
            Trouble::Prepare(claim) => self.prepare(node, claim, deaths),
            Trouble::Unprepare(claim) => self.unprepare(node, claim, deaths),
            Trouble::RunSandbox(pod) => self.run_sandbox(node, pod, deaths),
            Trouble::StartContainer(pod) if node.is_nri() => {
                self.start_container_by_nri(node, pod, deaths);
            }
            Trouble::StartContainer(pod) => self.start_container_by_hook(node, pod, deaths),
            Trouble::StopSandbox(pod) => self.stop_sandbox(node, pod, deaths),
            _ => self.occur(trouble),
        }
    }

    /// What follows at once in the kernel, and what must be so then.
    fn follow(&mut self) {
        self.end_namespaces();
        self.check();
    }

    /// What needs no process.
    fn occur(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Die => self.state.driver = None,
            Trouble::EndContainers(pod) => self.set_container(pod, false),
            Trouble::Delete(claim) => self.claims[claim].exists = false,
            Trouble::KubeletStarts => self.forget_answers(),
            Trouble::KubeletForgets => {
                self.left.forgets -= 1;
                self.forget_answers();
                self.claims.iter_mut().for_each(|claim| claim.is_known = false);
            }
            Trouble::Reboot => self.reboot(),
            Trouble::Arrive => self.state.interfaces.arrive(),
            Trouble::LoseCheckpoint => {
                self.left.losses -= 1;
                self.state.tree.retain(|path, _| !path.ends_with("checkpoint.json"));
            }
            Trouble::TearCheckpoint => {
                self.left.losses -= 1;
                let mut files = self.state.tree.iter_mut();
                if let Some((_, file)) = files.find(|(path, _)| path.ends_with("checkpoint.json")) {
                    *file = Entry::File([][..].into());
                }
            }
            other => panic!("{other:?} needs a process"),
        }
    }

    /// A kubelet that starts asks again for all claims.
    fn forget_answers(&mut self) {
        self.claims.iter_mut().for_each(|claim| claim.is_prepared = false);
    }

    /// Directories in memory are empty then, and the adapter is as the host sets it up.
    fn reboot(&mut self) {
        self.left.boots -= 1;
        self.state.boot += 1;
        self.state.tree.retain(|path, _| path.starts_with("kubelet"));
        self.state.driver = None;
        self.state.named.clear();
        let faults = mem::take(&mut self.state.interfaces.faults);
        self.state.interfaces = Interfaces { faults, ..interfaces() };
        for pod in &mut self.pods {
            (pod.sandbox, pod.has_container) = (None, false);
        }
        self.forget_answers();
    }

    pub(super) fn set_container(&mut self, pod: usize, has_container: bool) {
        self.pods[pod].has_container = has_container;
        let pods = self.pods.iter().filter(|pod| pod.has_container);
        self.state.interfaces.busy = pods.filter_map(|pod| pod.sandbox).collect();
    }

    /// The kernel ends the namespaces that have no name, and that nobody holds.
    fn end_namespaces(&mut self) {
        let State { named, driver, .. } = &self.state;
        let held: Vec<Number> = driver.iter().flat_map(|held| held.values().copied()).collect();
        let all = 0..self.namespaces();
        let ended = all.filter(|number| !named.contains(number) && !held.contains(number));
        for number in ended.collect::<Vec<_>>() {
            self.state.interfaces.end(number);
        }
    }

    /// What is so in each state.
    fn check(&mut self) {
        let place = self.adapter().place;
        let mut running = self.pods.iter().filter(|pod| pod.has_container);
        if running.any(|pod| pod.sandbox.map(Place::Pod) != Some(place)) {
            self.fault("a container that runs has lost its adapter");
        }
        if files_of_claims(&self.state.tree).is_empty() && *self.adapter() != at_first() {
            self.fault("the host does not have its settings, and nothing tells what they were");
        }
    }
}
