//! Names of objects.

/// Converts text to a valid object name.
pub(crate) fn object_name(text: &str) -> String {
    let kept = text.to_lowercase();
    let replaced: String =
        kept.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    replaced.trim_matches('-').to_owned()
}
