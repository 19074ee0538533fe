//! The parts of an expression that all have to be true.

/// Splits an expression at its outermost `&&`. Returns the whole expression if it is no conjunction,
/// or if it has a comment, `||` or `?:` outside brackets.
///
/// The parts are substrings in the order of the text, without surrounding white space. They may
/// fail to compile, since this follows brackets and strings only.
pub(crate) fn conjuncts(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut parts, mut start, mut at, mut depth) = (Vec::new(), 0, 0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match byte {
            b'"' | b'\'' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'/' if next == Some(&b'/') => return vec![text],
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return vec![text],
            // `a.?b` is an optional field.
            b'?' if depth == 0 && (at == 0 || bytes[at - 1] != b'.') => return vec![text],
            b'&' if depth == 0 && next == Some(&b'&') => {
                parts.push(text[start..at].trim());
                at += 1;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(text[start.min(text.len())..].trim());
    parts
}

/// The position after the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
    let triple = bytes[start..].starts_with(&[quote; 3]);
    let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
    let mut at = start + end.len();
    while at < bytes.len() {
        if bytes[at..].starts_with(end) {
            return at + end.len();
        }
        at += if bytes[at] == b'\\' && !raw { 2 } else { 1 };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::conjuncts;

    #[test]
    fn parts_of_conjunctions() {
        for (text, parts) in [
            ("a", &["a"][..]),
            ("a && b.?c.orValue(1) == 1&&d", &["a", "b.?c.orValue(1) == 1", "d"]),
            ("a\n  && b in [\"&&\", '&&', r'\\']", &["a", "b in [\"&&\", '&&', r'\\']"]),
            ("(a && b) && f(c && d)", &["(a && b)", "f(c && d)"]),
            ("a && b || c", &["a && b || c"]),
            ("a && (b || c)", &["a", "(b || c)"]),
            ("a ? b && c : d", &["a ? b && c : d"]),
            ("a && b // && c", &["a && b // && c"]),
            ("a &&", &["a", ""]),
            ("ä && 'ö' == ö", &["ä", "'ö' == ö"]),
        ] {
            assert_eq!(conjuncts(text), parts, "{text}");
        }
    }
}
