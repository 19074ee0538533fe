//! Takes from a text what terminals, mails and trackers add to it.

/// A reply quotes what it replies to; deeper quotations stay.
const QUOTATIONS_MAX: usize = 8;

/// The text as its program wrote it: without colours, and without the marks of a quotation.
pub(super) fn typed(text: &str) -> String {
    let mut text = without_colours(text);
    for _ in 0..QUOTATIONS_MAX {
        if !is_quoted(&text) {
            break;
        }
        text = text.lines().fold(String::new(), |text, line| text + unquoted(line) + "\n");
    }
    text
}

/// Whether each line begins with the mark of a quotation.
fn is_quoted(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some() && lines.all(|line| line.starts_with('>'))
}

fn unquoted(line: &str) -> &str {
    let line = line.trim_start();
    let line = line.strip_prefix('>').unwrap_or(line);
    line.strip_prefix(' ').unwrap_or(line)
}

/// The text without the terminal's escape sequences: `nvidia-smi` underlines its header.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let after = after.strip_prefix('[').unwrap_or(after);
        rest = after.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == ';');
        rest = rest.strip_prefix(|sign: char| sign.is_ascii_alphabetic()).unwrap_or(rest);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::typed;

    #[test]
    fn quotations_are_taken_off() {
        for (text, expected) in [
            ("> a\n>  b\n", "a\n b\n"),
            ("> > a\n> >\n", "a\n\n"),
            ("a\n> b\n", "a\n> b\n"),
            ("  >a", "a\n"),
            ("", ""),
            ("\n\n", "\n\n"),
        ] {
            assert_eq!(typed(text), expected, "{text:?}");
        }
    }
}
