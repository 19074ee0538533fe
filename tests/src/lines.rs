//! Lines of texts for people.

/// A text on one line: programs break lines where a terminal ends.
pub fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
