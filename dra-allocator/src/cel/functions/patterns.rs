//! A cache of compiled regular expressions: a selector uses the same one on every device.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex_automata::meta::Regex;

use crate::cel::error::RuntimeError;
use crate::cel::re2;
use crate::hash::HashMap;

/// The maximum number of cached expressions. Selectors hold a few; only a pattern built from
/// attributes differs per device.
const MAX_KNOWN: usize = 256;

/// The maximum total size of cached expressions, in bytes.
const MAX_BYTES: usize = 64 << 20;

#[derive(Default)]
struct Known {
    patterns: HashMap<Arc<str>, Regex>,
    bytes: usize,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The compiled expression for this text.
pub(super) fn pattern(text: &Arc<str>) -> Result<Regex, RuntimeError> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known.patterns.get(text) {
        return Ok(regex.clone());
    }
    let regex = re2::compile(text)
        .map_err(|error| RuntimeError::invalid(format!("Illegal regex: {error}")))?;
    let bytes = regex.memory_usage();
    if known.patterns.len() >= MAX_KNOWN || known.bytes + bytes > MAX_BYTES {
        *known = Known::default();
    }
    known.bytes += bytes;
    known.patterns.insert(text.clone(), regex.clone());
    Ok(regex)
}
