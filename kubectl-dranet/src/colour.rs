//! Colours severities on a terminal.

use std::io::{IsTerminal as _, stdout};

/// Line prefixes and their colours (ECMA-48, SGR).
const WORDS: [(&str, &str); 9] = [
    ("error:", "31"),
    ("denied:", "31"),
    ("\u{2717}", "31"),
    ("warning:", "33"),
    ("Warning:", "33"),
    ("note:", "36"),
    ("Note:", "36"),
    ("Admitted:", "32"),
    ("\u{2713}", "32"),
];

/// Whether standard output should have colours: it is a terminal, and `NO_COLOR` is not
/// set (<https://no-color.org>).
pub fn is_wanted() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stdout().is_terminal() && !is_refused && !is_dumb
}

/// Colours the severity at the start of each line.
pub fn paint(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    let rest = line.trim_start_matches(' ');
    let indent = &line[..line.len() - rest.len()];
    let found = WORDS.iter().find_map(|(word, colour)| {
        let tail = rest.strip_prefix(word).filter(|tail| tail.starts_with(' '))?;
        Some(format!("{indent}\x1b[{colour}m{word}\x1b[0m{tail}"))
    });
    found.unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_coloured() {
        let text = "error: a\n  warning: b\nan error: c\nnote:d\n";
        let expected =
            "\x1b[31merror:\x1b[0m a\n  \x1b[33mwarning:\x1b[0m b\nan error: c\nnote:d\n";
        assert_eq!(paint(text), expected);
    }
}
