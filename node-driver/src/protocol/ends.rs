//! What comes of a state in the end, if nothing else goes wrong.

use super::claims::files_of_claims;
use super::node::Node;
use super::world::{LAST, Trouble, USUAL, World, at_first};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// A node, and what is known to come of states on it.
pub(super) struct Play {
    pub(super) node: Node,
    hasher: RandomState,
    known: HashMap<(u64, Trouble), World>,
}

impl Play {
    pub(super) fn new(node: Node) -> Self {
        Self { node, hasher: RandomState::new(), known: HashMap::new() }
    }

    /// A number of a state, which no other one has in practice.
    pub(super) fn hash(&self, world: &World) -> u64 {
        self.hasher.hash_one(world)
    }

    /// Remembers what comes of a state if no process dies.
    pub(super) fn learn(&mut self, world: &World, trouble: Trouble, next: &World) {
        self.known.insert((self.hash(world), trouble), next.clone());
    }
}

impl World {
    /// Does what follows, if it can happen.
    fn goes_on(&mut self, play: &mut Play, trouble: Trouble) {
        if !self.is_possible(trouble) {
            return;
        }
        let key = (play.hash(self), trouble);
        if let Some(next) = play.known.get(&key) {
            self.clone_from(next);
        } else if let Some(next) = self.next(&mut play.node, trouble) {
            *self = next;
            play.known.insert(key, self.clone());
        }
    }

    /// The kubelet and the driver end what has to end.
    fn clean(&mut self, play: &mut Play) {
        self.goes_on(play, Trouble::Start);
        for pod in 0..self.pods.len() {
            if !self.claim_of(pod).exists {
                self.goes_on(play, Trouble::StopSandbox(pod));
            }
        }
        self.goes_on(play, Trouble::Arrive);
        for _ in 0..2 {
            for claim in 0..self.claims.len() {
                self.goes_on(play, Trouble::Unprepare(claim));
            }
            self.goes_on(play, Trouble::Repair);
            self.goes_on(play, Trouble::Search);
        }
    }

    /// All pods end, and all claims.
    pub(super) fn settle(&mut self, play: &mut Play) {
        for claim in 0..self.claims.len() {
            self.goes_on(play, Trouble::Delete(claim));
        }
        self.clean(play);
        self.check_end();
    }

    /// Nothing is left, and the host has all of its settings.
    fn check_end(&mut self) {
        if *self.adapter() != at_first() {
            self.fault("the host does not have its settings in the end");
        }
        if self.claims.iter().any(|claim| claim.is_known) {
            self.fault("a claim cannot be unprepared");
        }
        if !files_of_claims(&self.state.tree).is_empty() {
            self.fault("files are left");
        }
        if self.state.driver.as_ref().is_none_or(|held| !held.is_empty()) {
            self.fault("a namespace is held");
        }
    }

    /// A pod that is there gets the adapter in the end, unless another pod runs with it.
    pub(super) fn go_on(&mut self, play: &mut Play) {
        self.clean(play);
        let Some(claim) = (0..self.claims.len()).find(|claim| self.is_allocated(*claim)) else {
            return;
        };
        let claims: Vec<usize> = self.pods.iter().map(|pod| pod.claim).collect();
        // Several pods of one claim: whichever has the adapter keeps it.
        for _ in 0..3 {
            self.goes_on(play, Trouble::Prepare(claim));
            for pod in (0..self.pods.len()).filter(|pod| claims[*pod] == claim) {
                self.goes_on(play, Trouble::RunSandbox(pod));
                self.goes_on(play, Trouble::StartContainer(pod));
            }
        }
        let mut pods = self.pods.iter().filter(|pod| pod.claim == claim);
        let is_started = pods.clone().any(|pod| pod.has_container);
        if !is_started && !pods.all(|pod| pod.is_over(self.left)) {
            self.fault("a pod never starts");
        }
    }

    /// After all others comes another claim, which gets the adapter.
    pub(super) fn with_last(&self) -> Self {
        let mut next = Self::new(&[LAST], USUAL, self.mistake);
        next.claims[..LAST].iter_mut().for_each(|claim| claim.exists = false);
        next.state = self.state.clone();
        next
    }
}
