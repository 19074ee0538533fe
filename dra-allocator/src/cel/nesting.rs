//! Limits how deep an expression nests, before it is parsed. The parser, the tree and the
//! evaluation are recursive, so deep nesting would overflow the stack.

/// The maximum depth. Real expressions stay far below it: `&&` and `||` do not count, since the
/// parser balances them.
pub(super) const MAX_NESTING: usize = 100;

/// An upper bound of the depth of the tree: for each open bracket, the operators since the last
/// comma, `&&` or `||`.
pub(super) fn nesting(text: &str) -> usize {
    let mut open = vec![0_usize];
    let (mut deepest, mut above) = (0, 0);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at +=
                    bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'(' | b'[' | b'{' => {
                above += open.last().map_or(0, |count| count + 1);
                open.push(0);
            }
            b')' | b']' | b'}' if open.len() > 1 => {
                open.pop();
                // The bracket is an operator of the expression around it.
                count_one(&mut open);
                above = above.saturating_sub(open.last().copied().unwrap_or_default());
            }
            b',' | b'&' | b'|' => {
                open.last_mut().into_iter().for_each(|count| *count = 0);
            }
            b'.' | b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'?' | b':' | b'<' | b'>' | b'=' => {
                count_one(&mut open);
            }
            _ => {}
        }
        deepest = deepest.max(above + open.last().copied().unwrap_or_default());
        at += 1;
    }
    deepest
}

/// Counts an operator of the innermost bracket.
fn count_one(open: &mut [usize]) {
    open.last_mut().into_iter().for_each(|count| *count += 1);
}

/// The position after the string that begins at `start`.
pub(super) fn end_of_string(bytes: &[u8], start: usize) -> usize {
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
    use super::nesting;

    #[test]
    fn nesting_depth_of_expressions() {
        for (text, depth) in [
            ("true", 0),
            ("device.driver == \"a.b.c(((\"", 3),
            ("a.b && c.d || e.f", 1),
            ("f(g(h(x)))", 3),
            ("(a + b) + (c)", 3),
            ("r'\\' + '''a'(b''' + 1", 2),
            ("1 // + + + +\n+ 2", 1),
            ("[1, [2, [3]]]", 3),
        ] {
            assert_eq!(nesting(text), depth, "{text}");
        }
    }
}
