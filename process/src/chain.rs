//! An error with its sources, on one line.

use std::error::Error;
use std::fmt;

/// Joins an error and its sources with `: `.
///
/// Only this type joins sources: `Display` of our errors does not repeat the source.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", without_dumps(&self.0.to_string()))?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {}", without_dumps(&error.to_string()))?;
            source = error.source();
        }
        Ok(())
    }
}

/// What begins the debug output of an answer of the API server, which `kube::Error` adds to its message.
const DUMP: &str = " (Status {";

/// A text of an error without the debug output of values that libraries add in parentheses.
pub(crate) fn without_dumps(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, dump)) = rest.split_once(DUMP) {
        out.push_str(before);
        rest = after(dump);
    }
    out + rest
}

/// What follows the parenthesis that ends a value; nothing if none ends it. Strings in it are quoted. In a
/// line of JSON their quotes have one backslash more than in a text.
fn after(value: &str) -> &str {
    let (mut depth, mut quoted, mut backslashes) = (1, None, 0);
    for (index, character) in value.char_indices() {
        match (character, quoted) {
            ('"', None) => quoted = Some(backslashes),
            ('"', Some(level)) if backslashes % (2 * (level + 1)) == level => quoted = None,
            ('{' | '(', None) => depth += 1,
            ('}' | ')', None) if depth > 0 => depth -= 1,
            (')', None) => return &value[index + 1..],
            _ => {}
        }
        backslashes = if character == '\\' { backslashes + 1 } else { 0 };
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to read `{path}`")]
    struct ReadError {
        path: &'static str,
        source: io::Error,
    }

    #[test]
    fn debug_output_is_left_out() {
        let dump = r#"ApiError: Unauthorized (Status { status: Some(Failure), message: "a \"(b\" }", code: 401 }): x"#;
        assert_eq!(without_dumps(dump), "ApiError: Unauthorized: x");
        let json = dump.replace('\\', r"\\").replace('"', "\\\"");
        assert_eq!(without_dumps(&json), "ApiError: Unauthorized: x", "{json}");
        assert_eq!(without_dumps("no (Status of) it"), "no (Status of) it");
        assert_eq!(without_dumps("cut (Status { a"), "cut");
    }

    #[test]
    fn sources_follow_in_order() {
        let error = ReadError {
            path: "a",
            source: io::Error::new(io::ErrorKind::NotFound, "no such file"),
        };
        assert_eq!(Chain(&error).to_string(), "failed to read `a`: no such file");
    }
}
