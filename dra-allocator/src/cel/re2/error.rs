//! Errors of patterns, with the texts of Go's `regexp`.

use super::program::MAX_INSTRUCTIONS;

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ErrorKind {
    #[error("invalid character class range")]
    CharRange,
    #[error("invalid escape sequence")]
    Escape,
    #[error("invalid named capture")]
    NamedCapture,
    #[error("invalid or unsupported Perl syntax")]
    PerlOperator,
    #[error("invalid nested repetition operator")]
    RepeatOperator,
    #[error("invalid repeat count")]
    RepeatSize,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParenthesis,
    #[error("missing argument to repetition operator")]
    MissingArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    #[error("unexpected )")]
    UnexpectedParenthesis,
    #[error("expression nests too deeply")]
    Nesting,
}

/// A pattern cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// Go rejects it too.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// It has too many instructions. Go allows more.
    #[error("a regular expression with more than {MAX_INSTRUCTIONS} instructions is not supported")]
    TooLarge,
    /// The budget was spent before it was compiled.
    #[error("the time for expressions is spent")]
    Spent,
}

/// A pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {kind}: `{part}`")]
pub(crate) struct SyntaxError {
    kind: ErrorKind,
    part: String,
}

impl SyntaxError {
    pub(super) fn new(kind: ErrorKind, part: &str) -> Self {
        Self { kind, part: part.to_owned() }
    }
}
