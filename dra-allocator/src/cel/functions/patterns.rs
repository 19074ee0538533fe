//! Regular expressions, compiled once: a selector's is met again on every device.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;

use crate::cel::error::RuntimeError;
use crate::hash::HashMap;

/// How many are remembered. Selectors hold a few; only one that is made of attributes is new on
/// each device.
const MAX_KNOWN: usize = 256;

static KNOWN: LazyLock<Mutex<HashMap<Arc<str>, Regex>>> = LazyLock::new(Mutex::default);

/// The expression of this text.
pub(super) fn pattern(text: &Arc<str>) -> Result<Regex, RuntimeError> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known.get(text) {
        return Ok(regex.clone());
    }
    let regex = Regex::new(text)
        .map_err(|error| RuntimeError::invalid(format!("Illegal regex: {error}")))?;
    if known.len() >= MAX_KNOWN {
        known.clear();
    }
    known.insert(text.clone(), regex.clone());
    Ok(regex)
}
