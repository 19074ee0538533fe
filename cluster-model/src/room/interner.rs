//! Stores equal values once. Labels, names and requests of many pods are equal.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Number of values below which unused ones are not searched for.
const TIDY_MIN: usize = 1_024;

/// A set that stores each value once, however many owners it has.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The size at which unused values are dropped next.
    tidy_at: usize,
}

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), tidy_at: self.tidy_at }
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), tidy_at: TIDY_MIN }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// Returns the stored copy of a value; stores this one if there is none.
    pub fn share<Q>(&mut self, value: Q) -> Arc<T>
    where
        Q: Borrow<T> + Into<Arc<T>>,
    {
        if let Some(known) = self.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.tidy_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.tidy_at = TIDY_MIN.max(self.values.len() * 2);
        }
        let shared: Arc<T> = value.into();
        self.values.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_are_dropped() {
        let mut texts = Interner::<str>::default();
        let (a, again) = (texts.share("a"), texts.share("a".to_owned()));
        assert!(Arc::ptr_eq(&a, &again));
        for number in 0..10 * TIDY_MIN {
            texts.share(number.to_string());
        }
        assert!(texts.values.len() <= TIDY_MIN + 1, "{}", texts.values.len());
        assert!(Arc::ptr_eq(&a, &texts.share("a")));
    }
}
