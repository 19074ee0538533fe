//! The search: depth first, the first full solution wins.
//!
//! `allocateOne` and `allocateDevice` in `allocator_*.go`, with the same steps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::capacity;
use super::constraint::{ConstraintState, Seen};
use super::counters::Counters;
use super::error::{AllocateError, Failure, SelectorFailure};
use super::groups::Groups;
use super::prepare::{PreparedAsk, Problem};
use super::{Limits, MAX_DEVICES};
use crate::cel::Selector;
use crate::claim::Ask;
use crate::device::{AttributeValue, Device};
use crate::quantity::Quantity;

/// How many steps pass between two questions to the caller.
const STOP_INTERVAL: u64 = 256;

/// The search ends, or goes back further than one step.
#[derive(Debug)]
pub(super) enum Halt {
    /// The claim would get more devices than it can hold.
    MaxSize,
    Failed(Box<AllocateError>),
    OverBudget,
}

impl From<AllocateError> for Halt {
    fn from(error: AllocateError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failure> for Halt {
    fn from(error: Failure) -> Self {
        Self::Failed(error)
    }
}

/// A device that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) candidate: usize,
    pub(super) ask: usize,
    /// For a share of a device: what it takes, in the order of the device's capacities.
    pub(super) share: Option<Vec<Quantity>>,
}

/// What was chosen.
#[derive(Debug)]
pub(super) struct Solution {
    /// For each claim.
    pub(super) chosen: Vec<Vec<Chosen>>,
    /// For each claim and request the number of the subrequest.
    pub(super) subrequests: Vec<Vec<usize>>,
}

/// Searches; the answer and the number of steps.
pub(super) fn search(
    problem: &Problem<'_>,
    limits: Limits<'_>,
) -> (Result<Option<Solution>, Halt>, u64) {
    let mut search = Search::new(problem, limits);
    let found = search.one(Position::default(), false, 0);
    let Search { chosen, subrequests, steps, .. } = search;
    (found.map(|found| found.then_some(Solution { chosen, subrequests })), steps)
}

/// What the search fills next: the device of this number, of this subrequest, …
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    claim: usize,
    request: usize,
    subrequest: usize,
    device: usize,
}

/// What was changed for a device, so that it can be undone.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each part is changed or not by itself")]
struct Undo {
    claim: usize,
    ask: usize,
    candidate: usize,
    must: bool,
    groups: usize,
    counters: bool,
    constraints: usize,
    marked: bool,
    shared: bool,
    chosen: bool,
}

/// What is known of a device for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    NotAsked,
    Yes,
    No,
}

struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    limits: Limits<'p>,
    steps: u64,
    /// By candidate: how often it is in use, before the search and by it.
    uses: Vec<u32>,
    /// The candidates that were taken and for which claims, the last one last.
    taken: Vec<(usize, usize)>,
    /// By candidate: how many shares are being allocated, and what they take.
    shares: HashMap<usize, Vec<Vec<Quantity>>>,
    /// By ask: the first ask that judges devices in the same way.
    twins: Vec<usize>,
    /// By such an ask and candidate.
    verdicts: Vec<Verdict>,
    /// By claim and constraint.
    constraints: Vec<Vec<ConstraintState>>,
    /// By claim, constraint and candidate: the attribute's value, once it was looked at.
    seen: Vec<Vec<Vec<Seen>>>,
    derived: HashMap<(usize, Arc<str>), AttributeValue>,
    counters: Counters<'a>,
    groups: Groups,
    chosen: Vec<Vec<Chosen>>,
    subrequests: Vec<Vec<usize>>,
}

impl<'p, 'a> Search<'p, 'a> {
    fn new(problem: &'p Problem<'a>, limits: Limits<'p>) -> Self {
        let candidates = problem.candidates.len();
        let uses = problem.candidates.iter();
        let uses = uses.map(|candidate| problem.state.contains(&candidate.device.id).into());
        let constraints = problem.claims.iter().map(|claim| {
            let states = claim.constraints.iter();
            states.map(|(kind, _)| ConstraintState::new(*kind, problem.settings)).collect()
        });
        let seen = problem.claims.iter().map(|claim| vec![Vec::new(); claim.constraints.len()]);
        let subrequests = problem.claims.iter().map(|claim| vec![0; claim.requests.len()]);
        Self {
            problem,
            limits,
            steps: 0,
            uses: uses.collect(),
            taken: Vec::new(),
            shares: HashMap::new(),
            twins: (0..problem.asks.len()).map(|ask| twin(&problem.asks, ask)).collect(),
            verdicts: vec![Verdict::NotAsked; problem.asks.len() * candidates],
            constraints: constraints.collect(),
            seen: seen.collect(),
            derived: HashMap::new(),
            counters: Counters::default(),
            groups: Groups::default(),
            chosen: vec![Vec::new(); problem.claims.len()],
            subrequests: subrequests.collect(),
        }
    }

    fn count_step(&mut self) -> Result<(), Halt> {
        if self.limits.max_steps.is_some_and(|max| self.steps >= max) {
            return Err(Halt::OverBudget);
        }
        if self.steps.is_multiple_of(STOP_INTERVAL) && self.limits.stop.is_some_and(|stop| stop()) {
            return Err(Halt::OverBudget);
        }
        self.steps += 1;
        Ok(())
    }

    /// Fills the position and all after it. `start` is the first candidate that is tried.
    fn one(&mut self, at: Position, in_subrequest: bool, start: usize) -> Result<bool, Halt> {
        self.count_step()?;
        let problem = self.problem;
        let Some(claim) = problem.claims.get(at.claim) else { return Ok(true) };
        let Some(request) = claim.requests.get(at.request) else {
            let next = Position { claim: at.claim + 1, ..Position::default() };
            return match self.one(next, false, 0) {
                // This claim may still be given fewer devices.
                Err(Halt::MaxSize) => Ok(false),
                other => other,
            };
        };
        if request.prioritized && !in_subrequest {
            return self.first_available(at, request.asks);
        }
        let number = request.first_ask + at.subrequest;
        let ask = &problem.asks[number];
        if ask.ask.is_all() && ask.all.is_empty() {
            return Ok(false);
        }
        let filled = i64::try_from(at.device).unwrap_or(i64::MAX);
        if filled >= ask.count {
            let next = Position { claim: at.claim, request: at.request + 1, ..Position::default() };
            return self.one(next, false, 0);
        }
        let room = MAX_DEVICES - self.chosen[at.claim].len();
        if ask.count - filled > i64::try_from(room).unwrap_or(i64::MAX) {
            return Err(Halt::MaxSize);
        }
        if ask.ask.is_all() {
            return self.all(at, number, in_subrequest);
        }
        self.any(at, number, in_subrequest, start)
    }

    /// Tries subrequests in order. Where all need too many devices, so does the request.
    fn first_available(&mut self, at: Position, count: usize) -> Result<bool, Halt> {
        let mut all_too_large = true;
        for subrequest in 0..count {
            match self.one(Position { subrequest, ..at }, true, 0) {
                Err(Halt::MaxSize) => {}
                Ok(true) => {
                    self.subrequests[at.claim][at.request] = subrequest;
                    return Ok(true);
                }
                Ok(false) => all_too_large = false,
                Err(halt) => return Err(halt),
            }
        }
        if all_too_large { Err(Halt::MaxSize) } else { Ok(false) }
    }

    /// The next of all devices: it must be had, and there is no choice.
    fn all(&mut self, at: Position, ask: usize, in_subrequest: bool) -> Result<bool, Halt> {
        let candidate = self.problem.asks[ask].all[at.device];
        let Some(undo) = self.take(ask, candidate, true)? else { return Ok(false) };
        let done = self.one(Position { device: at.device + 1, ..at }, in_subrequest, 0);
        if !matches!(done, Ok(true)) {
            self.undo(undo);
        }
        done
    }

    /// Any device that fits, in order.
    fn any(
        &mut self,
        at: Position,
        ask: usize,
        in_subrequest: bool,
        start: usize,
    ) -> Result<bool, Halt> {
        let candidates = self.problem.candidates.len();
        let row = self.twins[ask] * candidates;
        for candidate in start..candidates {
            if self.is_taken(ask, candidate) {
                continue;
            }
            let verdict = match self.verdicts[row + candidate] {
                Verdict::NotAsked => self.judge(ask, candidate)?,
                known => known,
            };
            if verdict == Verdict::No {
                continue;
            }
            let Some(undo) = self.take(ask, candidate, false)? else { continue };
            let next = if self.problem.settings.quirks.permutations { 0 } else { candidate + 1 };
            let done = self.one(Position { device: at.device + 1, ..at }, in_subrequest, next);
            if matches!(done, Ok(true)) {
                return done;
            }
            self.undo(undo);
            done?;
        }
        Ok(false)
    }

    /// Whether a device cannot be taken because it is in use.
    fn is_taken(&self, ask: usize, candidate: usize) -> bool {
        let ask = &self.problem.asks[ask];
        if ask.ask.is_admin() {
            return self.taken.contains(&(candidate, ask.claim));
        }
        self.uses[candidate] > 0
    }

    /// Whether a device can be taken at all by a request: what does not depend on the search.
    fn judge(&mut self, ask: usize, candidate: usize) -> Result<Verdict, Halt> {
        let problem = self.problem;
        let prepared = &problem.asks[ask];
        let claim = problem.claims[prepared.claim].claim;
        let device = self.device(candidate);
        let fits = problem.is_selectable(claim, prepared, &problem.candidates[candidate])?
            && (self.is_shareable(device) || self.has_capacity(ask, candidate)?)
            && self.can_be_operated(candidate)
            && !self.is_tainted_for(device, prepared);
        let verdict = if fits { Verdict::Yes } else { Verdict::No };
        self.verdicts[self.twins[ask] * problem.candidates.len() + candidate] = verdict;
        Ok(verdict)
    }

    fn is_shareable(&self, device: &Device) -> bool {
        self.problem.settings.gates.consumable_capacity && device.allows_multiple_allocations()
    }

    fn is_tainted_for(&self, device: &Device, ask: &PreparedAsk<'_>) -> bool {
        let mut taints = device.taints().iter().filter(|taint| taint.prevents_allocation());
        let tolerations = &ask.ask.tolerations;
        self.problem.settings.gates.device_taints
            && taints.any(|taint| !tolerations.iter().any(|known| known.tolerates(taint)))
    }

    /// Whether the device has what the request takes, with what is in use and being allocated.
    fn has_capacity(&self, ask: usize, candidate: usize) -> Result<bool, Halt> {
        let settings = self.problem.settings;
        let prepared = &self.problem.asks[ask];
        let asked = prepared.ask.capacity.as_deref();
        let device = self.device(candidate);
        if !settings.gates.consumable_capacity || (asked.is_none() && device.capacity.is_empty()) {
            return Ok(true);
        }
        let in_use = self.problem.state.capacity_in_use(&device.id).unwrap_or_default();
        let taking = self.shares.get(&candidate).map(|shares| sum(shares));
        capacity::fits(asked, device, in_use, taking.as_deref(), settings).map_err(|source| {
            let claim = self.problem.claims[prepared.claim].claim;
            Problem::capacity_error(claim, prepared, device, source).into()
        })
    }

    fn device(&self, candidate: usize) -> &'a Device {
        self.problem.candidates[candidate].device
    }

    /// Takes a device for a request, if it can be taken (`allocateDevice`). Where it `must` be
    /// taken, a constraint that forbids it is an error.
    fn take(&mut self, ask: usize, candidate: usize, must: bool) -> Result<Option<Undo>, Halt> {
        let device = self.device(candidate);
        let prepared = &self.problem.asks[ask];
        // A device that must be had was not judged before.
        let unfit = || !self.can_be_operated(candidate) || self.is_tainted_for(device, prepared);
        if must && (self.is_taken(ask, candidate) || unfit()) {
            return Ok(None);
        }
        let mut undo = Undo {
            claim: prepared.claim,
            ask,
            candidate,
            must,
            groups: self.groups.mark(),
            counters: false,
            constraints: 0,
            marked: false,
            shared: false,
            chosen: false,
        };
        let refused = match self.take_parts(&mut undo) {
            Ok(None) => return Ok(Some(undo)),
            refused => refused,
        };
        self.undo(undo);
        match refused? {
            Some(Refusal::Constraint) if must => Err(self.constraint_error(undo).into()),
            _ => Ok(None),
        }
    }

    /// The parts of taking a device, each noted in `undo`; the reason where one is refused.
    fn take_parts(&mut self, undo: &mut Undo) -> Result<Option<Refusal>, Halt> {
        let problem = self.problem;
        let ask = &problem.asks[undo.ask];
        let device = self.device(undo.candidate);
        let shareable = self.is_shareable(device);
        // Of devices that are not shared the capacity was judged before.
        if shareable && !undo.must && !self.has_capacity(undo.ask, undo.candidate)? {
            return Ok(Some(Refusal::Other));
        }
        if !device.consumes_counters().is_empty() && !self.take_counters(undo, shareable) {
            return Ok(Some(Refusal::Other));
        }
        for index in 0..ask.constraints.len() {
            if !self.satisfies(undo, index)? {
                return Ok(Some(Refusal::Constraint));
            }
            undo.constraints += 1;
        }
        // Of a device that must be had a constraint comes first, since that is an error.
        if undo.must && !self.has_capacity(undo.ask, undo.candidate)? {
            return Ok(Some(Refusal::Other));
        }
        if !shareable {
            self.uses[undo.candidate] += 1;
            self.taken.push((undo.candidate, ask.claim));
            undo.marked = true;
        }
        let share = if shareable { Some(self.take_share(undo)?) } else { None };
        let chosen = Chosen { candidate: undo.candidate, ask: undo.ask, share };
        self.chosen[ask.claim].push(chosen);
        undo.chosen = true;
        Ok(None)
    }

    /// A device whose node operations are skipped needs a node that declares to know that.
    fn can_be_operated(&self, candidate: usize) -> bool {
        let feature = "DRAOptionalNodeOperations";
        let declared = &self.problem.node.declared_features;
        self.problem.candidates[candidate].slice.skip_node_operations.is_empty()
            || (self.problem.settings.gates.optional_node_operations
                && declared.iter().any(|declared| **declared == *feature))
    }

    /// Groups, then counters. A further share of a device is not charged again.
    fn take_counters(&mut self, undo: &mut Undo, shareable: bool) -> bool {
        let Problem { settings, state, pools, candidates, .. } = self.problem;
        if !settings.gates.partitionable_devices {
            return false;
        }
        let candidate = &candidates[undo.candidate];
        let device = candidate.device;
        if shareable && self.is_shared(undo.candidate) {
            return true;
        }
        let pool = &pools[candidate.pool];
        if settings.gates.compatibility_groups
            && !self.groups.add((candidate.pool, pool), device, state, settings)
        {
            return false;
        }
        undo.counters = self.counters.take(pool, device, state, settings);
        undo.counters
    }

    /// Whether a share of the device is in use or being allocated (`deviceCapacityInUse`).
    fn is_shared(&self, candidate: usize) -> bool {
        let Problem { settings, state, .. } = self.problem;
        let id = &self.device(candidate).id;
        state.capacity_in_use(id).is_some()
            || (!settings.quirks.shared_id_not_in_use && state.is_shared(id))
            || self.shares.get(&candidate).is_some_and(|shares| !shares.is_empty())
    }

    /// Adds the device to the constraint of this number among those that bind the request.
    fn satisfies(&mut self, undo: &Undo, index: usize) -> Result<bool, Halt> {
        let ask = &self.problem.asks[undo.ask];
        let constraint = ask.constraints[index];
        let name = self.problem.claims[ask.claim].constraints[constraint].1;
        let state = &mut self.constraints[ask.claim][constraint];
        let mut derived = ask.ask.derived_attributes.iter();
        if let Some((_, selector)) = derived.rfind(|(known, _)| known == name) {
            let value = derive(&mut self.derived, self.problem, undo.candidate, name, selector)?;
            let seen = state.see(Some(value));
            return Ok(state.add(ask.request, &seen));
        }
        let column = &mut self.seen[ask.claim][constraint];
        if column.is_empty() {
            let candidates = self.problem.candidates.iter();
            let seen = candidates.map(|candidate| state.see(candidate.device.attribute(name)));
            column.extend(seen);
        }
        Ok(state.add(ask.request, &column[undo.candidate]))
    }

    fn take_share(&mut self, undo: &mut Undo) -> Result<Vec<Quantity>, Halt> {
        let ask = &self.problem.asks[undo.ask];
        let device = self.device(undo.candidate);
        let asked = ask.ask.capacity.as_deref();
        let consumed = capacity::consumed(asked, device, self.problem.settings);
        let consumed = consumed.map_err(|source| {
            let claim = self.problem.claims[ask.claim].claim;
            Problem::capacity_error(claim, ask, device, source)
        })?;
        self.shares.entry(undo.candidate).or_default().push(consumed.clone());
        undo.shared = true;
        Ok(consumed)
    }

    fn constraint_error(&self, undo: Undo) -> AllocateError {
        AllocateError::Constraint {
            claim: self.problem.claims[undo.claim].claim.name.clone(),
            request: self.problem.asks[undo.ask].ask.name.clone(),
            device: self.device(undo.candidate).id.clone(),
        }
    }

    /// Takes back what was changed for a device, the last first.
    fn undo(&mut self, undo: Undo) {
        let Undo {
            claim,
            ask,
            candidate,
            must: _,
            groups,
            counters,
            constraints,
            marked,
            shared,
            chosen,
        } = undo;
        if chosen {
            self.chosen[claim].pop();
        }
        if let (true, Some(shares)) = (shared, self.shares.get_mut(&candidate)) {
            shares.pop();
        }
        if marked {
            self.uses[candidate] -= 1;
            self.taken.pop();
        }
        let ask = &self.problem.asks[ask];
        for constraint in ask.constraints[..constraints].iter().rev() {
            self.constraints[claim][*constraint].remove(ask.request);
        }
        self.groups.go_back(groups);
        if counters {
            self.counters.give_back(self.device(candidate), self.problem.settings);
        }
    }
}

/// The first ask that judges devices as this one does: of the same class, with the same
/// selectors, tolerations and capacity.
fn twin(asks: &[PreparedAsk<'_>], ask: usize) -> usize {
    let same = |a: &PreparedAsk<'_>, b: &PreparedAsk<'_>| {
        Arc::ptr_eq(&a.class, &b.class)
            && a.ask.tolerations == b.ask.tolerations
            && is_same_capacity(a.ask, b.ask)
            && a.ask.selectors.len() == b.ask.selectors.len()
            && expressions(a.ask).eq(expressions(b.ask))
    };
    asks[..ask].iter().position(|other| same(other, &asks[ask])).unwrap_or(ask)
}

fn expressions(ask: &Ask) -> impl Iterator<Item = &Arc<str>> {
    ask.selectors.iter().flatten().map(Selector::expression)
}

/// Whether two ask for the same amounts, written in the same way: policies look at that.
fn is_same_capacity(a: &Ask, b: &Ask) -> bool {
    let (Some(a), Some(b)) = (&a.capacity, &b.capacity) else {
        return a.capacity.is_none() && b.capacity.is_none();
    };
    let mut pairs = a.iter().zip(b);
    a.len() == b.len()
        && pairs.all(|((a, amount), (b, other))| a == b && amount.is_same_form(other))
}

/// Why a device is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Constraint,
    Other,
}

/// The value of a derived attribute; an error ends the attempt.
fn derive<'d>(
    known: &'d mut HashMap<(usize, Arc<str>), AttributeValue>,
    problem: &Problem<'_>,
    candidate: usize,
    name: &Arc<str>,
    selector: &Selector,
) -> Result<&'d AttributeValue, Failure> {
    let key = (candidate, selector.expression().clone());
    match known.entry(key) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            let device = problem.candidates[candidate].device;
            let failure = |source| AllocateError::DerivedAttribute { name: name.clone(), source };
            let compiled = selector.compiled();
            let compiled = compiled.map_err(|e| failure(SelectorFailure::Compile(e.clone())))?;
            let value = compiled.attribute(device).map_err(|source| {
                failure(SelectorFailure::Runtime { device: device.id.clone(), source })
            })?;
            Ok(entry.insert(value))
        }
    }
}

fn sum(shares: &[Vec<Quantity>]) -> Vec<i128> {
    let mut sums = vec![0; shares.first().map_or(0, Vec::len)];
    for share in shares {
        for (sum, taken) in sums.iter_mut().zip(share) {
            *sum += taken.nanos();
        }
    }
    sums
}
