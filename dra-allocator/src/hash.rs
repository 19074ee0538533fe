//! Hash maps and sets, quicker than those of the standard library: seeded at random as well, but
//! made for speed and not against an attacker who sees how long each takes.

use std::collections;

use foldhash::fast::RandomState;

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, RandomState>;
pub(crate) type HashSet<T> = collections::HashSet<T, RandomState>;
