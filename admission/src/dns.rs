//! The form of names of DNS, which names of objects have too.

/// Whether a text has the form of a label of a DNS name, of any length.
pub(crate) fn is_label(label: &str) -> bool {
    let is_inner = label.bytes().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    is_inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
}
