//! Constraints between the devices of a claim, while the search adds and removes devices.
//!
//! `matchAttributeConstraint` in `allocator_*.go` and `distinctAttributeConstraint` in
//! `constraint.go`. Values are numbered per constraint, so that the search compares numbers.

use std::rc::Rc;

use crate::device::AttributeValue;
use crate::settings::Settings;

/// A value of a device: nothing, something that equals nothing, or a number from [`FIRST`] on.
type ValueId = u32;

const MISSING: ValueId = 0;
/// A list where lists are not compared, or a value of an unknown kind.
const OPAQUE: ValueId = 1;
const FIRST: ValueId = 2;

/// The value of a device, as a constraint sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Scalar(ValueId),
    /// The elements of a list, sorted; a scalar is a list of one. Never empty.
    Set(Rc<[ValueId]>),
    /// With lists, a value without elements, or none: it satisfies nothing.
    Nothing,
}

/// The values that a constraint has met.
#[derive(Clone, Debug, Default)]
struct Numbering {
    known: Vec<AttributeValue>,
}

impl Numbering {
    fn number(&mut self, value: AttributeValue) -> ValueId {
        let index = self.known.iter().position(|known| *known == value).unwrap_or_else(|| {
            self.known.push(value);
            self.known.len() - 1
        });
        ValueId::try_from(index).map_or(ValueId::MAX, |index| index + FIRST)
    }

    fn set(&mut self, value: &AttributeValue) -> Rc<[ValueId]> {
        use AttributeValue as V;
        let mut numbers: Vec<_> = match value {
            V::Bools(values) => values.iter().map(|v| self.number(V::Bool(*v))).collect(),
            V::Ints(values) => values.iter().map(|v| self.number(V::Int(*v))).collect(),
            V::Strings(values) => {
                values.iter().map(|v| self.number(V::String(v.clone()))).collect()
            }
            V::Versions(values) => {
                values.iter().map(|v| self.number(V::Version(v.clone()))).collect()
            }
            V::Unknown => Vec::new(),
            scalar => vec![self.number(scalar.clone())],
        };
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into()
    }
}

/// The two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Match,
    Distinct,
}

/// A constraint and what the devices chosen so far make of it.
#[derive(Clone, Debug)]
pub(super) struct ConstraintState {
    kind: Kind,
    lists: bool,
    by_request: bool,
    keeps_intersection: bool,
    numbering: Numbering,
    /// The values of the devices that were added; of a match over lists the intersections.
    values: Vec<Seen>,
    /// With `by_request`: the value that each request was given last.
    last: Vec<(usize, Seen)>,
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

    /// What the constraint sees of a value.
    pub(super) fn see(&mut self, value: Option<&AttributeValue>) -> Seen {
        match value {
            None => Seen::Scalar(MISSING),
            Some(value) if self.lists => match self.numbering.set(value) {
                set if set.is_empty() => Seen::Nothing,
                set => Seen::Set(set),
            },
            Some(value) if value.is_list() || *value == AttributeValue::Unknown => {
                Seen::Scalar(OPAQUE)
            }
            Some(value) => Seen::Scalar(self.numbering.number(value.clone())),
        }
    }

    /// Adds a device of a request where the constraint allows it.
    pub(super) fn add(&mut self, request: usize, seen: &Seen) -> bool {
        if *seen == Seen::Scalar(MISSING) {
            return false;
        }
        match self.kind {
            Kind::Match => self.add_match(seen),
            Kind::Distinct if self.by_request => self.add_distinct_by_request(request, seen),
            Kind::Distinct => self.add_distinct(seen),
        }
    }

    fn add_match(&mut self, seen: &Seen) -> bool {
        let joined = match (self.count.checked_sub(1), seen) {
            (_, Seen::Nothing) => None,
            (None, seen) => {
                self.values.clear();
                Some(seen.clone())
            }
            (Some(_), Seen::Scalar(id)) => {
                let same = self.values.first() == Some(seen) && *id != OPAQUE;
                same.then(|| seen.clone())
            }
            (Some(_), Seen::Set(set)) => match self.values.last() {
                Some(Seen::Set(current)) => intersection(current, set),
                _ => None,
            },
        };
        let Some(joined) = joined else { return false };
        self.values.push(joined);
        self.count += 1;
        true
    }

    fn add_distinct(&mut self, seen: &Seen) -> bool {
        let allowed = is_distinct(seen, self.values.iter());
        if allowed {
            self.values.push(seen.clone());
            self.count += 1;
        }
        allowed
    }

    /// Up to 1.36 the first device is not looked at, and a request has one value only.
    fn add_distinct_by_request(&mut self, request: usize, seen: &Seen) -> bool {
        let allowed =
            self.count == 0 || is_distinct(seen, self.last.iter().map(|(_, value)| value));
        if allowed {
            self.last.retain(|(known, _)| *known != request);
            self.last.push((request, seen.clone()));
            self.count += 1;
        }
        allowed
    }

    /// Takes back the device that was added last.
    pub(super) fn remove(&mut self, request: usize) {
        self.count -= 1;
        if self.by_request {
            self.last.retain(|(known, _)| *known != request);
        } else if !(self.keeps_intersection && self.kind == Kind::Match && self.lists) {
            self.values.pop();
        }
    }
}

fn intersection(a: &[ValueId], b: &[ValueId]) -> Option<Seen> {
    let common: Vec<_> = a.iter().filter(|id| b.contains(id)).copied().collect();
    (!common.is_empty()).then(|| Seen::Set(common.into()))
}

/// Whether a value differs from all others.
fn is_distinct<'a>(seen: &Seen, mut others: impl Iterator<Item = &'a Seen>) -> bool {
    match seen {
        Seen::Nothing => false,
        Seen::Scalar(OPAQUE) => others.next().is_none(),
        Seen::Scalar(_) => others.all(|other| other != seen),
        Seen::Set(set) => others.all(|other| match other {
            Seen::Set(other) => intersection(set, other).is_none(),
            _ => true,
        }),
    }
}
