//! Phrases in user-facing texts.

/// `1 NIC`, `2 NICs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
