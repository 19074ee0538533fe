//! Character classes: `[…]`, `\d`, `[:alpha:]`, `\pL`.
//!
//! Follows `parseClass` and what it calls in Go's `regexp/syntax/parse.go`.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::cursor::Cursor;
use super::error::{ErrorKind, PatternError, SyntaxError};
use super::unicode;
use crate::budget::{Budget, Spent};

/// The Perl classes; upper-case letters negate them.
const PERL: &[(char, &[(char, char)])] = &[
    ('d', &[('0', '9')]),
    ('s', &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')]),
    ('w', &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
];

/// The POSIX classes.
const POSIX: &[(&str, &[(char, char)])] = &[
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("ascii", &[('\0', '\x7f')]),
    ("blank", &[('\t', '\t'), (' ', ' ')]),
    ("cntrl", &[('\0', '\x1f'), ('\x7f', '\x7f')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("word", &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

fn of_ranges(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(from, to)| ClassUnicodeRange::new(*from, *to)))
}

/// Charges what is done with a class. Folding takes a step for each character.
fn charge(class: &ClassUnicode, folds: bool, budget: &Budget<'_>) -> Result<(), PatternError> {
    let ranges = class.ranges().len() as u64;
    let characters = class.ranges().iter().map(|range| range.len() as u64);
    let units = ranges + if folds { characters.sum::<u64>() / 4 } else { 0 };
    budget.charge(1 + units).map_err(|Spent| PatternError::Spent)
}

/// Applies flags to a class, and charges that.
fn charged_group(
    class: ClassUnicode,
    negated: bool,
    folds: bool,
    budget: &Budget<'_>,
) -> Result<ClassUnicode, PatternError> {
    charge(&class, folds, budget)?;
    Ok(group(class, negated, folds))
}

/// Any character; without `all` none that ends a line.
pub(super) fn dot(all: bool) -> ClassUnicode {
    if all {
        of_ranges(&[('\0', char::MAX)])
    } else {
        group(of_ranges(&[('\n', '\n')]), true, false)
    }
}

/// Applies flags to a class: case folding first, then negation.
fn group(mut class: ClassUnicode, negated: bool, folds: bool) -> ClassUnicode {
    if folds {
        class.case_fold_simple();
    }
    if negated {
        opposite(&mut class);
    }
    class
}

/// The class of one character; of both its cases if `folds`.
pub(super) fn of_char(c: char, folds: bool) -> ClassUnicode {
    group(of_ranges(&[(c, c)]), false, folds)
}

/// Parses a class escape: `\d`, `\pL`, `\p{^Greek}`. Returns `None` if another
/// token comes next.
pub(super) fn escape(
    cursor: &mut Cursor<'_>,
    folds: bool,
    budget: &Budget<'_>,
) -> Result<Option<ClassUnicode>, PatternError> {
    let start = cursor.rest();
    let Some(name) = start.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
        return Ok(None);
    };
    if matches!(name, 'p' | 'P') {
        return unicode_escape(cursor, folds, budget).map(Some);
    }
    let perl = PERL.iter().find(|(letter, _)| *letter == name.to_ascii_lowercase());
    Ok(perl.map(|(_, ranges)| {
        cursor.skip(2);
        group(of_ranges(ranges), name.is_ascii_uppercase(), folds)
    }))
}

fn unicode_escape(
    cursor: &mut Cursor<'_>,
    folds: bool,
    budget: &Budget<'_>,
) -> Result<ClassUnicode, PatternError> {
    let start = cursor.rest();
    let mut negated = start.starts_with(r"\P");
    cursor.skip(2);
    let name = match cursor.next() {
        Some('{') => {
            let end = cursor.rest().find('}');
            let end = end.ok_or_else(|| SyntaxError::new(ErrorKind::CharRange, start))?;
            let name = &cursor.rest()[..end];
            cursor.skip(end + 1);
            name
        }
        Some(letter) => &start[2..2 + letter.len_utf8()],
        None => "",
    };
    let positive = name.strip_prefix('^');
    negated ^= positive.is_some();
    let class = unicode::class(positive.unwrap_or(name));
    let class = class.ok_or_else(|| SyntaxError::new(ErrorKind::CharRange, cursor.since(start)))?;
    charged_group(class, negated, folds, budget)
}

/// Parses a class in brackets.
pub(super) fn brackets(
    cursor: &mut Cursor<'_>,
    folds: bool,
    budget: &Budget<'_>,
) -> Result<ClassUnicode, PatternError> {
    let start = cursor.rest();
    cursor.skip(1);
    let negated = cursor.eat('^');
    let mut class = ClassUnicode::empty();
    let mut first = true;
    while first || !cursor.rest().starts_with(']') {
        first = false;
        // Each union sorts all ranges.
        charge(&class, false, budget)?;
        if let Some(named) = posix(cursor, folds)? {
            class.union(&named);
        } else if let Some(named) = escape(cursor, folds, budget)? {
            class.union(&named);
        } else {
            class.union(&charged_group(range(cursor, start)?, false, folds, budget)?);
        }
    }
    cursor.skip(1);
    if negated {
        opposite(&mut class);
    }
    Ok(class)
}

/// Parses `[:alpha:]` or `[:^alpha:]`. Returns `None` if another token comes next.
fn posix(cursor: &mut Cursor<'_>, folds: bool) -> Result<Option<ClassUnicode>, SyntaxError> {
    let start = cursor.rest();
    let Some(rest) = start.strip_prefix("[:") else { return Ok(None) };
    let Some(end) = rest.find(":]") else { return Ok(None) };
    let name = &rest[..end];
    cursor.skip(end + 4);
    let positive = name.strip_prefix('^');
    let known = POSIX.iter().find(|(known, _)| *known == positive.unwrap_or(name));
    let (_, ranges) =
        known.ok_or_else(|| SyntaxError::new(ErrorKind::CharRange, cursor.since(start)))?;
    Ok(Some(group(of_ranges(ranges), positive.is_some(), folds)))
}

/// Parses a character or a range. `start` is where the brackets begin.
fn range(cursor: &mut Cursor<'_>, start: &str) -> Result<ClassUnicode, SyntaxError> {
    let range = cursor.rest();
    let from = character(cursor, start)?;
    let mut to = from;
    // A hyphen at the end is literal.
    if cursor.rest().starts_with('-')
        && cursor.rest().len() >= 2
        && !cursor.rest().starts_with("-]")
    {
        cursor.skip(1);
        to = character(cursor, start)?;
        if to < from {
            return Err(SyntaxError::new(ErrorKind::CharRange, cursor.since(range)));
        }
    }
    Ok(scalars(from, to))
}

fn character(cursor: &mut Cursor<'_>, start: &str) -> Result<u32, SyntaxError> {
    if cursor.rest().starts_with('\\') {
        return cursor.escape();
    }
    let next = cursor.next().map(u32::from);
    next.ok_or_else(|| SyntaxError::new(ErrorKind::MissingBracket, start))
}

/// The characters in a range of code points, without surrogates.
fn scalars(from: u32, to: u32) -> ClassUnicode {
    let from = char::from_u32(if is_surrogate(from) { 0xe000 } else { from });
    let to = char::from_u32(if is_surrogate(to) { 0xd7ff } else { to });
    match (from, to) {
        (Some(from), Some(to)) if from <= to => of_ranges(&[(from, to)]),
        _ => ClassUnicode::empty(),
    }
}

fn is_surrogate(number: u32) -> bool {
    (0xd800..0xe000).contains(&number)
}

/// Negates a class.
fn opposite(class: &mut ClassUnicode) {
    let ends = class.ranges().iter().any(|range| range.end() == LAST_BELOW);
    let begins = class.ranges().iter().any(|range| range.start() == FIRST_ABOVE);
    if ends && begins {
        // No characters lie between these, but `ClassUnicode::negate` does not know that.
        class.push(ClassUnicodeRange::new(LAST_BELOW, FIRST_ABOVE));
    }
    class.negate();
}

/// The characters next to the surrogates.
const LAST_BELOW: char = '\u{d7ff}';
const FIRST_ABOVE: char = '\u{e000}';
