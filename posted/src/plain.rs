//! Takes from a text what terminals, mails and trackers add to it.

/// A reply quotes what it replies to; deeper quotations stay.
const QUOTATIONS_MAX: usize = 8;
/// What word processors make of hyphens, with as many as each stands for.
const DASHES: [(char, &str); 3] = [('\u{2013}', "--"), ('\u{2014}', "---"), ('\u{2011}', "-")];

/// The text as its program wrote it: without colours, quotation marks, the prefixes of `mpirun` and an
/// indentation of all lines, with hyphens, plain spaces and line feeds. A reply between quoted lines is left
/// out.
pub(super) fn typed(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\u{a0}', " ");
    let mut text = without_colours(&text);
    for (dash, hyphens) in DASHES {
        text = text.replace(dash, hyphens);
    }
    text = text.lines().fold(String::new(), |text, line| text + without_prefix(line) + "\n");
    for _ in 0..QUOTATIONS_MAX {
        if !is_quoted(&text) {
            break;
        }
        text = quoted_lines(&text);
    }
    without_indentation(&text)
}

/// The quoted lines without their marks. A reply begins after a blank line. Without one a line is the rest of
/// a quoted line, which a terminal broke where it was as long as the longest, or a mail at a space.
fn quoted_lines(text: &str) -> String {
    let longest = text.lines().map(|line| line.chars().count()).max();
    let mut quoted = String::with_capacity(text.len());
    let mut before = "";
    let mut is_of_quotation = false;
    for line in text.lines() {
        if is_quotation(line) {
            quoted = quoted + "\n" + unquoted(line);
            is_of_quotation = true;
        } else if line.trim().is_empty() {
            is_of_quotation = false;
        } else if is_of_quotation {
            let is_full = Some(before.chars().count()) == longest;
            quoted = quoted + if is_full { "" } else { "\n" } + line;
        }
        before = line;
    }
    quoted.strip_prefix('\n').unwrap_or(&quoted).to_owned() + "\n"
}

/// The text without the spaces with which every line begins.
fn without_indentation(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let common = lines.map(|line| line.len() - line.trim_start_matches(' ').len()).min();
    let common = common.unwrap_or_default();
    text.lines().fold(String::new(), |text, line| text + line.get(common..).unwrap_or("") + "\n")
}

/// The lines with their numbers, from 1. A terminal breaks all lines of one length: what follows such a line
/// of a listing, and is no line of the listing by itself, belongs to it.
pub(super) fn unwrapped(lines: &[&str], is_own: fn(&str) -> bool) -> Vec<(usize, String)> {
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let is_wrapped = lines.iter().filter(|line| line.chars().count() == longest).count() > 1;
    let mut whole: Vec<(usize, String)> = Vec::new();
    let mut is_full = false;
    for (index, line) in lines.iter().enumerate() {
        let is_rest = is_full && is_wrapped && !line.trim().is_empty() && !is_own(line);
        match whole.last_mut().filter(|_| is_rest) {
            Some((_, before)) => before.push_str(line),
            None => whole.push((index + 1, (*line).to_owned())),
        }
        let is_of_listing = whole.last().is_some_and(|(_, line)| is_own(line));
        is_full = line.chars().count() == longest && is_of_listing;
    }
    whole
}

/// Whether most lines begin with the mark of a quotation.
fn is_quoted(text: &str) -> bool {
    let (quoted, others): (Vec<_>, Vec<_>) =
        text.lines().filter(|line| !line.trim().is_empty()).partition(|line| is_quotation(line));
    quoted.len() > others.len()
}

fn is_quotation(line: &str) -> bool {
    line.trim_start().starts_with('>')
}

/// `mpirun --tag-output` begins each line with `[1,0]<stdout>:`.
fn without_prefix(line: &str) -> &str {
    let rest = line.strip_prefix('[').and_then(|rest| rest.split_once("]<std"));
    let rest = rest.filter(|(rank, _)| rank.bytes().all(|it| it.is_ascii_digit() || it == b','));
    rest.and_then(|(_, rest)| rest.split_once(">:")).map_or(line, |(_, text)| text)
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
    fn what_others_added_is_taken_off() {
        for (text, expected) in [
            ("> a\n>  b\n", "a\n b\n"),
            ("> > a\n> >\n", "a\n\n"),
            ("> a\n> b\n\nI see\n\n>\n> c\n", "a\nb\n\nc\n"),
            ("a\n> b\n", "a\n> b\n"),
            ("  >a", "a\n"),
            ("", ""),
            ("\n\n", "\n\n"),
            ("a\rb\r\nc", "a\nb\nc\n"),
            ("\u{feff}a\u{a0}\u{2013}+", "a --+\n"),
            ("  a\n\n   b\n", "a\n\n b\n"),
            ("[1,0]<stdout>: a\n[1,0]<stderr>:b\n[x]", " a\nb\n[x]\n"),
        ] {
            assert_eq!(typed(text), expected, "{text:?}");
        }
    }
}
