//! Regular expressions with the syntax of Go's `regexp`, which is the RE2 that CEL uses.
//!
//! Follows `regexp/syntax/parse.go` of Go 1.26, and finds the same match: the leftmost one, and of
//! several the first alternative. The syntax of the crate `regex` differs: its `\w`, `\d`, `\s` and
//! `\b` are Unicode's, its classes have operators, and it has flags and escapes that Go rejects. Its
//! automata match bytes: `\pL{1000}`, which is cheap for Go, would take a hundred megabytes.
//!
//! Tenants write patterns. The size of a part is known before it is made, and each step of
//! compilation and search is charged.

mod class;
mod cursor;
mod error;
mod program;
mod run;
mod unicode;

use std::mem;

use regex_syntax::hir::{ClassUnicode, Look};

use self::cursor::Cursor;
use self::error::ErrorKind;
use self::program::{Classes, Code, Instruction, MAX_INSTRUCTIONS};
use crate::budget::{Budget, Spent};

pub(crate) use self::error::{PatternError, SyntaxError};
pub(crate) use self::program::Program;
pub(super) use self::run::Search;

/// The maximum repeat count, multiplied over nested repetitions.
const MAX_REPEAT: u32 = 1000;

/// The maximum nesting of a pattern (`maxHeight`).
const MAX_HEIGHT: usize = 1000;

/// Compiles a pattern.
pub(super) fn compile(pattern: &str, budget: &Budget<'_>) -> Result<Program, PatternError> {
    let mut parser = Parser::new(pattern, budget);
    while !parser.cursor.rest().is_empty() {
        parser.token()?;
    }
    parser.end()
}

/// The flags that apply at a position in the pattern.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "flags are a set of booleans")]
struct Flags {
    /// `i`: letters match both cases.
    folds: bool,
    /// `m`: `^` and `$` match at line ends.
    multi_line: bool,
    /// `s`: `.` also matches a line feed.
    dot_all: bool,
    /// `U`: repetitions are lazy, and greedy with `?`.
    lazy: bool,
}

/// A part of a pattern.
#[derive(Debug)]
struct Part {
    code: Code,
    /// Whether it can match nothing.
    nullable: bool,
    height: usize,
    /// The largest repeat count in it, multiplied over nested repetitions.
    repeats: u32,
}

impl Part {
    fn leaf(instruction: Instruction) -> Self {
        let nullable = matches!(instruction, Instruction::Look(_));
        Self { code: vec![instruction], nullable, height: 1, repeats: 1 }
    }

    /// Joins several parts into one: one after the other, or as alternatives.
    fn join(mut parts: Vec<Self>, alternatives: bool) -> Self {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let height = parts.iter().map(|part| part.height).max().unwrap_or_default() + 1;
        let repeats = parts.iter().map(|part| part.repeats).max().unwrap_or(1);
        let mut nullable = parts.iter().map(|part| part.nullable);
        let nullable = if alternatives { nullable.any(|it| it) } else { nullable.all(|it| it) };
        let codes = parts.into_iter().map(|part| part.code);
        let code = if alternatives {
            program::alternation(codes.collect())
        } else {
            codes.flatten().collect()
        };
        Self { code, nullable, height, repeats }
    }
}

/// An open group, or the whole pattern.
#[derive(Debug, Default)]
struct Group {
    /// The flags around it.
    flags: Flags,
    captures: bool,
    alternatives: Vec<Part>,
    /// The parts of the last alternative.
    parts: Vec<Part>,
}

impl Group {
    fn end_alternative(&mut self) {
        let parts = mem::take(&mut self.parts);
        self.alternatives.push(Part::join(parts, false));
    }

    fn close(mut self) -> Part {
        self.end_alternative();
        let mut part = Part::join(self.alternatives, true);
        part.height += usize::from(self.captures);
        part
    }
}

#[derive(Debug)]
struct Parser<'p> {
    pattern: &'p str,
    cursor: Cursor<'p>,
    flags: Flags,
    /// The innermost open group.
    group: Group,
    /// The enclosing groups.
    around: Vec<Group>,
    /// The start of the repetition that was just parsed.
    repeated: Option<&'p str>,
    classes: Classes,
    /// The instructions that repetitions added.
    repeated_code: usize,
    budget: &'p Budget<'p>,
}

impl<'p> Parser<'p> {
    fn new(pattern: &'p str, budget: &'p Budget<'p>) -> Self {
        Self {
            pattern,
            cursor: Cursor::new(pattern),
            flags: Flags::default(),
            group: Group::default(),
            around: Vec::new(),
            repeated: None,
            classes: Classes::default(),
            repeated_code: 0,
            budget,
        }
    }

    /// The whole pattern.
    fn end(self) -> Result<Program, PatternError> {
        if !self.around.is_empty() {
            return Err(SyntaxError::new(ErrorKind::MissingParenthesis, self.pattern).into());
        }
        let is_too_large = self.is_too_large();
        let code = self.group.close().code;
        if is_too_large || code.len() > MAX_INSTRUCTIONS {
            return Err(PatternError::TooLarge);
        }
        Ok(Program::new(code, self.classes))
    }

    fn charge(&self, units: usize) -> Result<(), PatternError> {
        self.budget.charge(units as u64).map_err(|Spent| PatternError::Spent)
    }

    fn push(&mut self, instruction: Instruction) {
        self.group.parts.push(Part::leaf(instruction));
    }

    fn push_class(&mut self, class: &ClassUnicode) {
        let instruction = self.classes.instruction(class);
        self.push(instruction);
    }

    fn push_char(&mut self, c: char) {
        if self.flags.folds {
            self.push_class(&class::of_char(c, true));
        } else {
            self.push(Instruction::Char(c));
        }
    }

    /// Parses the next part of the pattern.
    fn token(&mut self) -> Result<(), PatternError> {
        self.charge(4)?;
        let start = self.cursor.rest();
        let repeated = self.repeated.take();
        match start.as_bytes()[0] {
            b'(' => self.open()?,
            b'|' => {
                self.cursor.skip(1);
                self.group.end_alternative();
            }
            b')' => self.close()?,
            b'^' => self.look(if self.flags.multi_line { Look::StartLF } else { Look::Start }, 1),
            b'$' => self.look(if self.flags.multi_line { Look::EndLF } else { Look::End }, 1),
            b'.' => {
                self.cursor.skip(1);
                self.push_class(&class::dot(self.flags.dot_all));
            }
            b'[' => {
                let class = class::brackets(&mut self.cursor, self.flags.folds, self.budget)?;
                self.push_class(&class);
            }
            b'*' | b'+' | b'?' | b'{' => self.repetition(repeated)?,
            b'\\' => self.escape()?,
            _ => {
                if let Some(c) = self.cursor.next() {
                    self.push_char(c);
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, look: Look, length: usize) {
        self.cursor.skip(length);
        self.push(Instruction::Look(look));
    }

    /// Parses `(`, with what may follow a `?`.
    fn open(&mut self) -> Result<(), SyntaxError> {
        let start = self.cursor.rest();
        if !start.starts_with("(?") {
            self.cursor.skip(1);
            self.open_group(self.flags, true);
            return Ok(());
        }
        let is_named = start.starts_with("(?P<") && start.len() > 4
            || start.starts_with("(?<") && start.len() > 3;
        if is_named { self.open_named() } else { self.open_with_flags() }
    }

    fn open_group(&mut self, inner: Flags, captures: bool) {
        let group = Group { flags: self.flags, captures, ..Group::default() };
        self.around.push(mem::replace(&mut self.group, group));
        self.flags = inner;
    }

    /// Parses `(?P<name>` or `(?<name>`.
    fn open_named(&mut self) -> Result<(), SyntaxError> {
        let start = self.cursor.rest();
        let end =
            start.find('>').ok_or_else(|| SyntaxError::new(ErrorKind::NamedCapture, start))?;
        let begin = if start.starts_with("(?P") { 4 } else { 3 };
        let name = start.get(begin..end).unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(SyntaxError::new(ErrorKind::NamedCapture, &start[..=end]));
        }
        self.cursor.skip(end + 1);
        self.open_group(self.flags, true);
        Ok(())
    }

    /// Parses `(?flags)` or `(?flags:`.
    fn open_with_flags(&mut self) -> Result<(), SyntaxError> {
        let start = self.cursor.rest();
        self.cursor.skip(2);
        let (mut flags, mut on, mut any) = (self.flags, true, true);
        while let Some(c) = self.cursor.next() {
            match c {
                'i' => flags.folds = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_all = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    (on, any) = (false, false);
                    continue;
                }
                ':' | ')' if any => {
                    if c == ':' {
                        self.open_group(flags, false);
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => break,
            }
            any = true;
        }
        Err(SyntaxError::new(ErrorKind::PerlOperator, self.cursor.since(start)))
    }

    fn close(&mut self) -> Result<(), PatternError> {
        self.cursor.skip(1);
        let Some(around) = self.around.pop() else {
            return Err(SyntaxError::new(ErrorKind::UnexpectedParenthesis, self.pattern).into());
        };
        let closed = mem::replace(&mut self.group, around);
        self.flags = closed.flags;
        let part = closed.close();
        self.charge(part.code.len() / 4)?;
        self.check_height(&part)?;
        self.group.parts.push(part);
        Ok(())
    }

    fn check_height(&self, part: &Part) -> Result<(), SyntaxError> {
        if part.height > MAX_HEIGHT {
            return Err(SyntaxError::new(ErrorKind::Nesting, self.pattern));
        }
        Ok(())
    }

    /// Parses `*`, `+`, `?` or `{…}`; braces that are not a repetition are literal. `repeated` is
    /// the start of a repetition directly before.
    fn repetition(&mut self, repeated: Option<&'p str>) -> Result<(), PatternError> {
        let start = self.cursor.rest();
        let counted = start.starts_with('{');
        let counts = match start.as_bytes()[0] {
            b'*' => Some((0, None)),
            b'+' => Some((1, None)),
            b'?' => Some((0, Some(1))),
            _ => self.counts()?,
        };
        let Some((min, max)) = counts else {
            self.cursor.skip(1);
            self.push_char('{');
            return Ok(());
        };
        if !counted {
            self.cursor.skip(1);
        }
        let greedy = self.cursor.eat('?') == self.flags.lazy;
        if let Some(before) = repeated {
            return Err(
                SyntaxError::new(ErrorKind::RepeatOperator, self.cursor.since(before)).into()
            );
        }
        let Some(part) = self.group.parts.pop() else {
            return Err(
                SyntaxError::new(ErrorKind::MissingArgument, self.cursor.since(start)).into()
            );
        };
        let repeats = match (counted, max) {
            (true, Some(0)) => 0,
            (true, most) => part.repeats.saturating_mul(most.unwrap_or(min).max(1)),
            (false, _) => part.repeats,
        };
        if counted && (min >= 2 || max >= Some(2)) && repeats > MAX_REPEAT {
            return Err(SyntaxError::new(ErrorKind::RepeatSize, self.cursor.since(start)).into());
        }
        let code = self.repeat(&part, (min, max), greedy)?;
        let nullable = part.nullable || min == 0;
        let part = Part { code, nullable, height: part.height + 1, repeats };
        self.check_height(&part)?;
        self.group.parts.push(part);
        self.repeated = Some(start);
        Ok(())
    }

    /// Once this is true, only the syntax of the rest matters.
    fn is_too_large(&self) -> bool {
        self.repeated_code > MAX_INSTRUCTIONS
    }

    /// Code that repeats a part, if it is not too large. Its size is known before it is made.
    fn repeat(
        &mut self,
        part: &Part,
        counts: (u32, Option<u32>),
        greedy: bool,
    ) -> Result<Code, PatternError> {
        let size = program::repetition_size(&part.code, counts.0, counts.1);
        self.repeated_code += size.saturating_sub(part.code.len());
        if self.is_too_large() {
            return Ok(Code::new());
        }
        self.charge(size / 4)?;
        Ok(program::repetition(&part.code, counts, greedy, part.nullable))
    }

    /// Parses `{2}`, `{2,}` or `{2,3}`; `None` if something else comes next.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, SyntaxError> {
        let start = self.cursor.rest();
        let Some(end) = start.find('}') else { return Ok(None) };
        let inner = &start[1..end];
        let (min, max) = match inner.split_once(',') {
            None => (number(inner), Some(number(inner))),
            Some((min, "")) => (number(min), None),
            Some((min, max)) => (number(min), Some(number(max))),
        };
        let (Some(min), Some(max)) = (min, max.map_or(Some(None), |max| max.map(Some))) else {
            return Ok(None);
        };
        self.cursor.skip(end + 1);
        if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || max < min) {
            return Err(SyntaxError::new(ErrorKind::RepeatSize, self.cursor.since(start)));
        }
        Ok(Some((min, max)))
    }

    fn escape(&mut self) -> Result<(), PatternError> {
        let start = self.cursor.rest();
        match start.as_bytes().get(1) {
            Some(b'A') => self.look(Look::Start, 2),
            Some(b'z') => self.look(Look::End, 2),
            Some(b'b') => self.look(Look::WordAscii, 2),
            Some(b'B') => self.look(Look::WordAsciiNegate, 2),
            Some(b'C') => return Err(SyntaxError::new(ErrorKind::Escape, &start[..2]).into()),
            Some(b'Q') => {
                let quoted = &start[2..];
                let end = quoted.find(r"\E");
                quoted[..end.unwrap_or(quoted.len())].chars().for_each(|c| self.push_char(c));
                self.cursor.skip(2 + end.map_or(quoted.len(), |end| end + 2));
            }
            _ => {
                let class = class::escape(&mut self.cursor, self.flags.folds, self.budget)?;
                if let Some(class) = class {
                    self.push_class(&class);
                    return Ok(());
                }
                match char::from_u32(self.cursor.escape()?) {
                    Some(c) => self.push_char(c),
                    // A surrogate, which no string contains.
                    None => self.push_class(&ClassUnicode::empty()),
                }
            }
        }
        Ok(())
    }
}

/// Parses a number in a repetition, without leading zeros. A number that overflows exceeds the
/// limit anyway.
fn number(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some(digits.parse().unwrap_or(u32::MAX))
}
