//! Text for a terminal or a log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text in which no character controls the terminal: all control characters except line feed and
/// tab, and those that change the direction of text, are written as in JSON, such as `\u001b`.
///
/// Names, selectors and annotations come from tenants. In a JSON document the result has the same
/// meaning.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(controls) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if controls(c) {
            let _infallible = write!(printable, "\\u{:04x}", u32::from(c));
        } else {
            printable.push(c);
        }
    }
    Cow::Owned(printable)
}

fn controls(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let clean = "näme\n\tdevice.driver == \"a\" ✓";
        assert!(matches!(printable(clean), Cow::Borrowed(_)));
        for (text, expected) in [
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("a\rb\u{9b}31m\u{7f}", "a\\u000db\\u009b31m\\u007f"),
            ("a\u{202e}b", "a\\u202eb"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
