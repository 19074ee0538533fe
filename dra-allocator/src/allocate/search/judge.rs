//! What a request thinks of a device whatever else is chosen: found out once, when the search
//! first meets the two.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::super::error::{AllocateError, Failure, SelectorFailure};
use super::super::prepare::{PreparedAsk, Problem};
use super::bits;
use super::{Halt, Search};
use crate::cel::Selector;
use crate::claim::Ask;
use crate::device::{AttributeValue, Device};
use crate::hash::HashMap;

/// What is known of a device for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    No,
}

/// The verdicts so far. Requests that judge in the same way share theirs.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// By ask: the first ask that judges devices in the same way.
    twins: Vec<usize>,
    /// The words of a row.
    words: usize,
    /// A row for each ask: the candidates that can be taken.
    fit: Vec<u64>,
    /// And those that cannot.
    refused: Vec<u64>,
}

impl Verdicts {
    pub(super) fn new(asks: &[PreparedAsk<'_>], candidates: usize) -> Self {
        let words = bits::words(candidates);
        let mut refused = vec![0; asks.len() * words];
        for row in refused.chunks_mut(words.max(1)) {
            bits::end(row, candidates);
        }
        Self {
            twins: (0..asks.len()).map(|ask| twin(asks, ask)).collect(),
            words,
            fit: vec![0; asks.len() * words],
            refused,
        }
    }

    /// The first ask that judges as this one.
    pub(super) fn twin(&self, ask: usize) -> usize {
        self.twins[ask]
    }

    /// The candidates that an ask cannot take, as a set of bits.
    pub(super) fn refused(&self, ask: usize) -> &[u64] {
        &self.refused[self.twins[ask] * self.words..][..self.words]
    }

    fn known(&self, ask: usize, candidate: usize) -> Option<Verdict> {
        let row = self.twins[ask] * self.words;
        let is_in = |set: &[u64]| bits::contains(&set[row..row + self.words], candidate);
        if is_in(&self.fit) {
            Some(Verdict::Yes)
        } else {
            is_in(&self.refused).then_some(Verdict::No)
        }
    }

    fn note(&mut self, ask: usize, candidate: usize, verdict: Verdict) {
        let set = match verdict {
            Verdict::Yes => &mut self.fit,
            Verdict::No => &mut self.refused,
        };
        set[self.twins[ask] * self.words + candidate / 64] |= 1 << (candidate % 64);
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

impl<'a> Search<'_, 'a> {
    /// Whether a device can be taken at all by a request.
    pub(super) fn verdict(&mut self, ask: usize, candidate: usize) -> Result<Verdict, Halt> {
        match self.verdicts.known(ask, candidate) {
            Some(known) => Ok(known),
            None => self.judge(ask, candidate),
        }
    }

    fn judge(&mut self, ask: usize, candidate: usize) -> Result<Verdict, Halt> {
        let problem = self.problem;
        let prepared = &problem.asks[ask];
        let claim = problem.claims[prepared.claim].claim;
        let device = self.device(candidate);
        let fits = problem.is_selectable(claim, prepared, &problem.candidates[candidate])?
            // What a shared device has left changes; amounts that are errors are so at once.
            && (self.has_capacity(ask, candidate)? || self.is_shareable(device))
            && self.can_be_operated(candidate)
            && (self.draws_before_taints(device) || !self.is_tainted_for(device, prepared));
        let verdict = if fits { Verdict::Yes } else { Verdict::No };
        self.verdicts.note(ask, candidate, verdict);
        Ok(verdict)
    }

    pub(super) fn device(&self, candidate: usize) -> &'a Device {
        self.problem.candidates[candidate].device
    }

    pub(super) fn is_shareable(&self, device: &Device) -> bool {
        self.problem.settings.gates.consumable_capacity && device.allows_multiple_allocations()
    }

    pub(super) fn is_tainted_for(&self, device: &Device, ask: &PreparedAsk<'_>) -> bool {
        let mut taints = device.taints().iter().filter(|taint| taint.prevents_allocation());
        let tolerations = &ask.ask.tolerations;
        self.problem.settings.gates.device_taints
            && taints.any(|taint| !tolerations.iter().any(|known| known.tolerates(taint)))
    }

    /// Whether it matters that Kubernetes counts what a device draws before it looks at taints:
    /// where the first device of any pool of a name decides what counters there are.
    pub(super) fn draws_before_taints(&self, device: &Device) -> bool {
        self.problem.settings.quirks.counters_by_pool_name && !device.consumes_counters().is_empty()
    }

    /// A device whose node operations are skipped needs a node that declares to know that.
    pub(super) fn can_be_operated(&self, candidate: usize) -> bool {
        let feature = "DRAOptionalNodeOperations";
        let declared = &self.problem.node.declared_features;
        self.problem.candidates[candidate].slice.skip_node_operations.is_empty()
            || (self.problem.settings.gates.optional_node_operations
                && declared.iter().any(|declared| **declared == *feature))
    }

    /// Whether the device has what the request takes, with what is in use and being allocated.
    pub(super) fn has_capacity(&mut self, ask: usize, candidate: usize) -> Result<bool, Halt> {
        let Problem { settings, candidates, in_use, asks, claims, .. } = self.problem;
        let (prepared, device) = (&asks[ask], candidates[candidate].device);
        let asked = prepared.ask.capacity.as_deref();
        if !settings.gates.consumable_capacity || (asked.is_none() && device.capacity.is_empty()) {
            return Ok(true);
        }
        let in_use = in_use[candidates[candidate].pool];
        let twin = self.verdicts.twin(ask);
        let fits = self.shares.fits((twin, asked), (candidate, device), in_use, settings);
        fits.map_err(|source| {
            Problem::capacity_error(claims[prepared.claim].claim, prepared, device, source).into()
        })
    }
}

/// Derived attributes by candidate and expression.
#[derive(Debug, Default)]
pub(super) struct Derived {
    known: HashMap<(usize, Arc<str>), AttributeValue>,
}

impl Derived {
    /// The value of a derived attribute; an error ends the attempt.
    pub(super) fn value(
        &mut self,
        problem: &Problem<'_>,
        candidate: usize,
        name: &Arc<str>,
        selector: &Selector,
    ) -> Result<&AttributeValue, Failure> {
        let key = (candidate, selector.expression().clone());
        match self.known.entry(key) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let device = problem.candidates[candidate].device;
                let failure =
                    |source| AllocateError::DerivedAttribute { name: name.clone(), source };
                let compiled = selector.compiled();
                let compiled =
                    compiled.map_err(|e| failure(SelectorFailure::Compile(e.clone())))?;
                let value = compiled.attribute(device).map_err(|source| {
                    failure(SelectorFailure::Runtime { device: device.id.clone(), source })
                })?;
                Ok(entry.insert(value))
            }
        }
    }
}
