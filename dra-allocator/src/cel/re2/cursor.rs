//! The rest of a pattern, with the escapes of single characters.

use super::error::{ErrorKind, SyntaxError};

/// The rest of a pattern.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'p> {
    rest: &'p str,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(pattern: &'p str) -> Self {
        Self { rest: pattern }
    }

    pub(super) fn rest(&self) -> &'p str {
        self.rest
    }

    /// Skips this number of bytes.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Returns the next character and skips it.
    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.skip(next.len_utf8());
        Some(next)
    }

    /// Skips a character if it comes next; returns true if it did.
    pub(super) fn eat(&mut self, expected: char) -> bool {
        let comes = self.rest.starts_with(expected);
        if comes {
            self.skip(expected.len_utf8());
        }
        comes
    }

    /// The text from an earlier position up to here.
    pub(super) fn since(&self, start: &'p str) -> &'p str {
        &start[..start.len() - self.rest.len()]
    }

    /// Parses the next escape and returns its code point (`parseEscape`).
    pub(super) fn escape(&mut self) -> Result<u32, SyntaxError> {
        let start = self.rest;
        self.skip(1);
        let Some(c) = self.next() else {
            return Err(SyntaxError::new(ErrorKind::TrailingBackslash, ""));
        };
        let found = match c {
            '0' => Some(self.octal(0)),
            // A single digit would be a back-reference.
            '1'..='7' if self.rest.starts_with(|c| matches!(c, '0'..='7')) => {
                Some(self.octal(u32::from(c) - u32::from('0')))
            }
            'x' => self.hex(),
            'a' => Some(0x07),
            'f' => Some(0x0c),
            'n' => Some(0x0a),
            'r' => Some(0x0d),
            't' => Some(0x09),
            'v' => Some(0x0b),
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        found.ok_or_else(|| SyntaxError::new(ErrorKind::Escape, self.since(start)))
    }

    /// Parses up to three octal digits; the first has been read.
    fn octal(&mut self, first: u32) -> u32 {
        let mut number = first;
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            number = number * 8 + digit;
            self.skip(1);
        }
        number
    }

    /// Parses two hexadecimal digits, or any number of them in braces.
    fn hex(&mut self) -> Option<u32> {
        if !self.eat('{') {
            let digits = [self.next()?.to_digit(16), self.next()?.to_digit(16)];
            return Some(digits[0]? * 16 + digits[1]?);
        }
        let mut number = 0;
        let mut digits = 0;
        loop {
            let c = self.next()?;
            if c == '}' {
                return (digits > 0).then_some(number);
            }
            number = number * 16 + c.to_digit(16)?;
            digits += 1;
            if number > u32::from(char::MAX) {
                return None;
            }
        }
    }
}
