//! Finds matches, as `exec.go` of Go's `regexp`: all ways at once, one character after the other.
//! The time is at most instructions times characters, and each step is charged.

use std::mem;
use std::ops::Range;

use regex_syntax::hir::Look;

use super::program::{Instruction, Program};
use crate::cel::error::RuntimeError;
use crate::cel::work::Work;

/// A way through the program: the next instruction, and where the match began.
type Way = (usize, usize);

/// A search in one text.
pub(crate) struct Search<'p, 't> {
    program: &'p Program,
    text: &'t str,
    /// Ends a search at the first match, whose end does not matter.
    any: bool,
    /// The last round in which an instruction was reached, by instruction.
    reached: Vec<u32>,
    round: u32,
    /// Instructions to follow.
    open: Vec<usize>,
    steps: u64,
}

impl<'p, 't> Search<'p, 't> {
    pub(crate) fn new(program: &'p Program, text: &'t str) -> Self {
        Self {
            program,
            text,
            any: false,
            reached: vec![0; program.instructions() + 1],
            round: 0,
            open: Vec::new(),
            steps: 0,
        }
    }

    /// Returns true if the pattern matches somewhere.
    pub(crate) fn matches(mut self, work: &mut Work<'_>) -> Result<bool, RuntimeError> {
        self.any = true;
        self.from(0, work).map(|found| found.is_some())
    }

    /// The first match.
    pub(crate) fn first(mut self, work: &mut Work<'_>) -> Result<&'t str, RuntimeError> {
        let found = self.from(0, work)?;
        Ok(found.map_or("", |found| &self.text[found]))
    }

    /// All matches, up to a limit (`allMatches` in `regexp.go`): an empty match directly after a
    /// match does not count.
    pub(crate) fn all(
        mut self,
        limit: usize,
        work: &mut Work<'_>,
    ) -> Result<Vec<&'t str>, RuntimeError> {
        let (mut all, mut at, mut last) = (Vec::new(), 0, None);
        while all.len() < limit && at <= self.text.len() {
            let Some(found) = self.from(at, work)? else { break };
            let is_empty = found.end == at;
            let after_match = is_empty && last == Some(found.start);
            let next = self.text[found.end..].chars().next().map_or(1, char::len_utf8);
            at = found.end + if is_empty { next } else { 0 };
            last = Some(found.end);
            if !after_match {
                all.push(&self.text[found]);
            }
        }
        Ok(all)
    }

    /// The first match that does not begin before `start`.
    fn from(
        &mut self,
        start: usize,
        work: &mut Work<'_>,
    ) -> Result<Option<Range<usize>>, RuntimeError> {
        let (mut now, mut next, mut found) = (Vec::new(), Vec::new(), None);
        let mut at = start;
        self.round += 1;
        loop {
            if found.is_none() {
                self.add(&mut now, (0, at), at);
            }
            let read = self.text[at..].chars().next();
            let after = at + read.map_or(0, char::len_utf8);
            self.round += 1;
            self.steps += now.len() as u64;
            for (number, begun) in now.drain(..) {
                let Some(instruction) = self.program.code.get(number) else {
                    found = Some(begun..at);
                    break;
                };
                if read.is_some_and(|read| self.program.accepts(*instruction, read)) {
                    self.add(&mut next, (number + 1, begun), after);
                }
            }
            work.charge(1 + mem::take(&mut self.steps))?;
            if read.is_none() || (found.is_some() && (self.any || next.is_empty())) {
                return Ok(found);
            }
            mem::swap(&mut now, &mut next);
            at = after;
        }
    }

    /// Adds a way, and all that it leads to without reading a character, in order of preference.
    fn add(&mut self, ways: &mut Vec<Way>, (first, begun): Way, at: usize) {
        self.open.push(first);
        while let Some(number) = self.open.pop() {
            if mem::replace(&mut self.reached[number], self.round) == self.round {
                continue;
            }
            self.steps += 1;
            match self.program.code.get(number) {
                Some(Instruction::Jump(to)) => self.open.push(target(number, *to)),
                Some(Instruction::Fork { to, target_first }) => {
                    let (target, next) = (target(number, *to), number + 1);
                    // The last one pushed is followed first.
                    self.open.extend(if *target_first { [next, target] } else { [target, next] });
                }
                Some(Instruction::Look(look)) if !self.holds(*look, at) => {}
                Some(Instruction::Look(_)) => self.open.push(number + 1),
                Some(Instruction::Char(_) | Instruction::Class(_)) | None => {
                    ways.push((number, begun));
                }
            }
        }
    }

    /// Returns true if a position in the text is as asked.
    fn holds(&self, look: Look, at: usize) -> bool {
        let bytes = self.text.as_bytes();
        let (before, after) = (at.checked_sub(1).map(|at| bytes[at]), bytes.get(at).copied());
        match look {
            Look::Start => at == 0,
            Look::End => at == bytes.len(),
            Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
            Look::EndLF => after.is_none_or(|byte| byte == b'\n'),
            Look::WordAsciiNegate => is_word(before) == is_word(after),
            // The parser makes no others.
            _ => is_word(before) != is_word(after),
        }
    }
}

impl Program {
    fn accepts(&self, instruction: Instruction, read: char) -> bool {
        match instruction {
            Instruction::Char(c) => c == read,
            Instruction::Class(number) => self.contains(number, read),
            _ => false,
        }
    }

    fn contains(&self, class: u32, read: char) -> bool {
        let ranges = self.classes.get(class as usize).map_or(&[][..], |ranges| ranges);
        let after = ranges.partition_point(|(from, _)| *from <= read);
        after > 0 && read <= ranges[after - 1].1
    }
}

fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// The instruction at a distance.
fn target(number: usize, distance: i32) -> usize {
    number.wrapping_add_signed(distance as isize)
}
