//! Hash maps and sets, quicker than those of the standard library: seeded at random as well, but
//! made for speed and not against an attacker who sees how long each takes.

use std::collections;
use std::hash::Hash;

use foldhash::fast::RandomState;

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, RandomState>;
pub(crate) type HashSet<T> = collections::HashSet<T, RandomState>;

/// The first of the names that was there before.
pub(crate) fn duplicate<'a, T: Hash + Eq>(names: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut known = HashSet::default();
    known.reserve(names.size_hint().0);
    names.into_iter().find(|name| !known.insert(*name))
}
