//! Locks of values that are always complete.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock is harmless: the value is always complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
