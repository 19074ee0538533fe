//! The instructions of a compiled pattern, and how its parts become instructions.
//!
//! Follows `compile.go` and `simplify.go` of Go's `regexp/syntax`. As there, an instruction is for
//! one character, whatever its class: `\pL{400}` is 400 instructions and one class. An automaton of
//! bytes, as in the crate `regex`, would have a million states.

use crate::hash::HashMap;

use regex_syntax::hir::{ClassUnicode, Look};

/// The maximum number of instructions in a pattern. Go allows 3.3 million, which no person writes.
pub(super) const MAX_INSTRUCTIONS: usize = 100_000;

/// An instruction. Targets are relative, so code can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// One character.
    Char(char),
    /// One character of a class, by its index.
    Class(u32),
    /// A position.
    Look(Look),
    /// Two ways: the next instruction, and this one. The first way that matches counts.
    Fork {
        to: i32,
        /// True if the target is tried before the next instruction.
        target_first: bool,
    },
    Jump(i32),
}

/// Code for a part of a pattern: falling off its end is a match.
pub(super) type Code = Vec<Instruction>;

/// A class: sorted ranges of characters.
pub(super) type Ranges = Box<[(char, char)]>;

/// The classes of a pattern, each stored once.
#[derive(Debug, Default)]
pub(super) struct Classes {
    list: Vec<Ranges>,
    numbers: HashMap<Ranges, u32>,
}

impl Classes {
    /// The instruction for one character of a class.
    pub(super) fn instruction(&mut self, class: &ClassUnicode) -> Instruction {
        let ranges: Ranges =
            class.ranges().iter().map(|range| (range.start(), range.end())).collect();
        if let [(from, to)] = *ranges
            && from == to
        {
            return Instruction::Char(from);
        }
        if let Some(number) = self.numbers.get(&ranges) {
            return Instruction::Class(*number);
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(ranges.clone());
        self.numbers.insert(ranges, number);
        Instruction::Class(number)
    }
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) code: Code,
    pub(super) classes: Vec<Ranges>,
}

impl Program {
    pub(super) fn new(code: Code, classes: Classes) -> Self {
        Self { code, classes: classes.list }
    }

    /// Its size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let ranges: usize = self.classes.iter().map(|ranges| size_of_val(&**ranges)).sum();
        size_of_val(&*self.code) + ranges
    }

    /// The number of its instructions.
    pub(crate) fn instructions(&self) -> usize {
        self.code.len()
    }
}

/// The distance to a target. Code is never long enough for an overflow.
fn distance(instructions: usize) -> i32 {
    i32::try_from(instructions).unwrap_or(i32::MAX)
}

/// Code for one of several alternatives, the first first.
pub(super) fn alternation(mut alternatives: Vec<Code>) -> Code {
    let Some(last) = alternatives.pop() else { return Code::new() };
    let mut left = alternatives.iter().map(|code| code.len() + 2).sum::<usize>() + last.len();
    let mut code = Code::with_capacity(left);
    for alternative in alternatives {
        left -= alternative.len() + 2;
        code.push(Instruction::Fork { to: distance(alternative.len() + 2), target_first: false });
        code.extend(alternative);
        code.push(Instruction::Jump(distance(left) + 1));
    }
    code.extend(last);
    code
}

/// The number of instructions of a repetition, before it is made.
pub(super) fn repetition_size(code: &Code, min: u32, max: Option<u32>) -> usize {
    let (once, times) = (code.len(), |count: u32| count as usize);
    let required = times(min).saturating_mul(once);
    match max {
        // The last copy is the one that is repeated.
        None => required.max(once).saturating_add(2),
        Some(max) => {
            let optional = times(max.saturating_sub(min)).saturating_mul(once.saturating_add(1));
            required.saturating_add(optional)
        }
    }
}

/// Code that repeats other code. `nullable` is true if that code can match nothing.
pub(super) fn repetition(
    code: &Code,
    (min, max): (u32, Option<u32>),
    greedy: bool,
    nullable: bool,
) -> Code {
    let mut repeated = Code::with_capacity(repetition_size(code, min, max));
    let Some(max) = max else {
        for _ in 1..min {
            repeated.extend_from_slice(code);
        }
        repeated.extend(if min == 0 { star(code, greedy, nullable) } else { plus(code, greedy) });
        return repeated;
    };
    for _ in 0..min {
        repeated.extend_from_slice(code);
    }
    // `x{0,3}` is `(x(x(x)?)?)?`: each way out leads to the end.
    for left in (1..=max.saturating_sub(min) as usize).rev() {
        let to = distance(left * (code.len() + 1));
        repeated.push(Instruction::Fork { to, target_first: !greedy });
        repeated.extend_from_slice(code);
    }
    repeated
}

fn star(code: &Code, greedy: bool, nullable: bool) -> Code {
    // `x*` of an `x` that can match nothing is `(x+)?`, or priorities would differ.
    if nullable {
        return quest(plus(code, greedy), greedy);
    }
    let mut star = quest(code.clone(), greedy);
    star[0] = Instruction::Fork { to: distance(code.len() + 2), target_first: !greedy };
    star.push(Instruction::Jump(-distance(code.len() + 1)));
    star
}

fn plus(code: &Code, greedy: bool) -> Code {
    let mut plus = code.clone();
    plus.push(Instruction::Fork { to: -distance(code.len()), target_first: greedy });
    plus
}

fn quest(code: Code, greedy: bool) -> Code {
    let mut quest = Code::with_capacity(code.len() + 1);
    quest.push(Instruction::Fork { to: distance(code.len() + 1), target_first: !greedy });
    quest.extend(code);
    quest
}
