//! Constraints between the devices of a claim, kept up to date while the search adds and removes
//! devices.
//!
//! Follows `matchAttributeConstraint` in `allocator_*.go` and `distinctAttributeConstraint` in
//! `constraint.go`. Each value gets a number when the search first reads it. The search then
//! compares numbers and allocates no memory.

use crate::device::AttributeValue;
use crate::hash::HashMap;
use crate::settings::Settings;

/// A device's value as a constraint sees it: one of the constants below, or from [`ValueNumber::FIRST`] on
/// the number of a value or of a set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ValueNumber(u32);

impl ValueNumber {
    /// The device's value has not been read yet.
    pub(super) const NOT_ASKED: Self = Self(0);
    /// The device does not have the attribute.
    const MISSING: Self = Self(1);
    /// A list while lists are not compared, or a value of an unknown kind. It equals nothing.
    const OPAQUE: Self = Self(2);
    /// An empty list, or an empty intersection of lists. It satisfies nothing.
    const NOTHING: Self = Self(3);
    const FIRST: u32 = 4;

    fn number(index: usize) -> Self {
        Self(u32::try_from(index).map_or(u32::MAX, |index| index.saturating_add(Self::FIRST)))
    }

    fn index(self) -> Option<usize> {
        self.0.checked_sub(Self::FIRST).and_then(|index| usize::try_from(index).ok())
    }
}

/// Numbers for the values and, with lists, the sets of values that a constraint has met.
#[derive(Clone, Debug, Default)]
struct Numbering {
    values: Vec<AttributeValue>,
    /// Sets of value numbers, sorted. A scalar is a set with one element.
    sets: Vec<Box<[usize]>>,
    intersections: HashMap<(ValueNumber, ValueNumber), ValueNumber>,
}

impl Numbering {
    fn value(&mut self, value: &AttributeValue) -> usize {
        self.values.iter().position(|known| known == value).unwrap_or_else(|| {
            self.values.push(value.clone());
            self.values.len() - 1
        })
    }

    fn set(&mut self, value: &AttributeValue) -> ValueNumber {
        let mut numbers: Vec<_> = value.elements().iter().map(|it| self.value(it)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.number_of(numbers)
    }

    fn number_of(&mut self, set: Vec<usize>) -> ValueNumber {
        if set.is_empty() {
            return ValueNumber::NOTHING;
        }
        let known = self.sets.iter().position(|known| **known == *set);
        ValueNumber::number(known.unwrap_or_else(|| {
            self.sets.push(set.into());
            self.sets.len() - 1
        }))
    }

    fn elements(&self, seen: ValueNumber) -> &[usize] {
        seen.index().and_then(|index| self.sets.get(index)).map_or(&[], |set| set)
    }

    /// The intersection of two sets. Each pair is computed once.
    fn intersection(&mut self, a: ValueNumber, b: ValueNumber) -> ValueNumber {
        if let Some(known) = self.intersections.get(&(a, b)) {
            return *known;
        }
        let others = self.elements(b);
        let common = self.elements(a).iter().filter(|value| others.contains(value)).copied();
        let common = common.collect();
        let common = self.number_of(common);
        self.intersections.insert((a, b), common);
        common
    }
}

/// The kinds of constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Match,
    Distinct,
}

/// A constraint and its state for the devices chosen so far.
#[derive(Clone, Debug)]
pub(super) struct ConstraintState {
    kind: Kind,
    lists: bool,
    by_request: bool,
    keeps_intersection: bool,
    numbering: Numbering,
    /// The values of the added devices; for a match over lists, the running intersections.
    values: Vec<ValueNumber>,
    /// With `by_request`: the last value of each request.
    last: Vec<(usize, ValueNumber)>,
    count: usize,
}

impl ConstraintState {
    pub(super) fn new(kind: Kind, settings: &Settings) -> Self {
        Self {
            kind,
            lists: settings.gates.list_type_attributes,
            by_request: kind == Kind::Distinct && settings.quirks.distinct_by_request,
            keeps_intersection: settings.quirks.list_intersection_kept,
            numbering: Numbering::default(),
            values: Vec::new(),
            last: Vec::new(),
            count: 0,
        }
    }

    /// Returns a value's number.
    pub(super) fn see(&mut self, value: Option<&AttributeValue>) -> ValueNumber {
        match value {
            None => ValueNumber::MISSING,
            Some(value) if self.lists => self.numbering.set(value),
            Some(value) if value.is_list() || *value == AttributeValue::Unknown => {
                ValueNumber::OPAQUE
            }
            Some(value) => ValueNumber::number(self.numbering.value(value)),
        }
    }

    /// Adds a device of a request. Returns false if the constraint forbids the device.
    pub(super) fn add(&mut self, request: usize, seen: ValueNumber) -> bool {
        match (self.kind, seen) {
            (_, ValueNumber::MISSING) | (Kind::Match, ValueNumber::NOTHING) => false,
            (Kind::Match, _) => self.add_match(seen),
            (Kind::Distinct, _) if self.by_request => self.add_by_request(request, seen),
            (Kind::Distinct, _) => self.add_distinct(seen),
        }
    }

    fn add_match(&mut self, seen: ValueNumber) -> bool {
        let joined = match (self.count, self.values.last()) {
            (0, _) | (_, None) => {
                self.values.clear();
                seen
            }
            (_, Some(current)) if self.lists => {
                let common = self.numbering.intersection(*current, seen);
                if common == ValueNumber::NOTHING {
                    return false;
                }
                common
            }
            (_, Some(current)) if *current == seen && seen != ValueNumber::OPAQUE => seen,
            _ => return false,
        };
        self.values.push(joined);
        self.count += 1;
        true
    }

    fn add_distinct(&mut self, seen: ValueNumber) -> bool {
        let Self { lists, numbering, values, .. } = self;
        let allowed = is_distinct(seen, values.iter(), *lists, numbering);
        if allowed {
            self.values.push(seen);
            self.count += 1;
        }
        allowed
    }

    /// Up to 1.36: the first device is not compared, and each request has one value only.
    fn add_by_request(&mut self, request: usize, seen: ValueNumber) -> bool {
        let Self { lists, numbering, last, .. } = self;
        let others = last.iter().map(|(_, value)| value);
        let allowed = self.count == 0 || is_distinct(seen, others, *lists, numbering);
        if allowed {
            self.last.retain(|(known, _)| *known != request);
            self.last.push((request, seen));
            self.count += 1;
        }
        allowed
    }

    /// Removes the device that was added last.
    pub(super) fn remove(&mut self, request: usize) {
        self.count -= 1;
        if self.by_request {
            self.last.retain(|(known, _)| *known != request);
        } else if !(self.keeps_intersection && self.kind == Kind::Match && self.lists) {
            self.values.pop();
        }
    }
}

/// Returns true if the value differs from all others.
fn is_distinct<'a>(
    seen: ValueNumber,
    mut others: impl Iterator<Item = &'a ValueNumber>,
    lists: bool,
    numbering: &mut Numbering,
) -> bool {
    match seen {
        ValueNumber::NOTHING => false,
        ValueNumber::OPAQUE => others.next().is_none(),
        _ if lists => others.all(|other| {
            other.index().is_none() || numbering.intersection(seen, *other) == ValueNumber::NOTHING
        }),
        _ => others.all(|other| *other != seen),
    }
}
