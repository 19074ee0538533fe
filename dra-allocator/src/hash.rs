//! Hash maps and sets that are faster than those of the standard library. They are seeded at
//! random, but do not resist an attacker who measures response times.

use std::collections;
use std::hash::Hash;

use foldhash::fast::RandomState;

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, RandomState>;
pub(crate) type HashSet<T> = collections::HashSet<T, RandomState>;

/// Returns the first repeated name.
pub(crate) fn duplicate<'a, T: Hash + Eq>(names: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut known = HashSet::default();
    known.reserve(names.size_hint().0);
    names.into_iter().find(|name| !known.insert(*name))
}
