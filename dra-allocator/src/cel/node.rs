//! A compiled expression: a tree of nodes.

use std::sync::Arc;

use super::function::Function;
use super::re2::{PatternError, Program};
use super::value::Value;

/// A node of a compiled expression.
#[derive(Debug)]
pub(crate) enum Node {
    Literal(Value),
    /// A variable of a comprehension or of `cel.bind`.
    Slot(usize),
    /// `device.driver`.
    Driver,
    /// `device.allowMultipleAllocations`.
    AllowsMultipleAllocations,
    /// `device.attributes["domain"].id`, with its full name `domain/id`.
    Attribute {
        name: Arc<str>,
        id: Arc<str>,
    },
    Field {
        of: Box<Self>,
        field: Arc<str>,
        optional: bool,
    },
    /// `has(of.field)`.
    Test {
        of: Box<Self>,
        field: Arc<str>,
    },
    Index {
        of: Box<Self>,
        key: Box<Self>,
        optional: bool,
    },
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    NotStrictlyFalse(Box<Self>),
    Conditional(Box<[Self; 3]>),
    Compare {
        operator: Comparison,
        left: Box<Self>,
        right: Box<Self>,
    },
    Call {
        function: &'static Function,
        arguments: Vec<Self>,
    },
    /// `matches`, `find` or `findAll`.
    Search(Box<SearchCall>),
    /// `or` and `orValue` of optionals evaluate their argument only if needed.
    OrElse {
        optional: Box<Self>,
        otherwise: Box<Self>,
        unwrap: bool,
    },
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    Comprehension(Box<Comprehension>),
    /// `cel.bind`: evaluates the value once and stores it in the next slot.
    Bind {
        value: Box<Self>,
        body: Box<Self>,
    },
}

/// The comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// The functions that search for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchFunction {
    Matches,
    Find,
    FindAll,
}

impl SearchFunction {
    /// The function that is called by this name with this number of arguments, the receiver
    /// included.
    pub(super) fn called(name: &str, is_method: bool, arguments: usize) -> Option<Self> {
        match (name, is_method, arguments) {
            ("matches", _, 2) => Some(Self::Matches),
            ("find", true, 2) => Some(Self::Find),
            ("findAll", true, 2 | 3) => Some(Self::FindAll),
            _ => None,
        }
    }
}

/// A call of one of these functions.
#[derive(Debug)]
pub(crate) struct SearchCall {
    pub(crate) function: SearchFunction,
    /// The text, the pattern, and for `findAll` the most matches.
    pub(crate) arguments: Vec<Node>,
    /// The pattern if it is a literal.
    pub(crate) program: Option<CompiledPattern>,
}

/// A compiled pattern, or the reason why it has none.
pub(crate) type CompiledPattern = Arc<Result<Program, PatternError>>;

/// A loop over a list or a map. Its slots, from the first free one: the accumulator, then the
/// variable or variables of the loop.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Node,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
    pub(crate) two_variables: bool,
}

impl Node {
    /// About how many bytes of memory it takes, with everything below it.
    pub(crate) fn bytes(&self) -> usize {
        let own = match self {
            Self::Literal(Value::String(text)) => text.len(),
            Self::Literal(Value::Bytes(bytes)) => bytes.len(),
            Self::Attribute { name, id } => name.len() + id.len(),
            Self::Search(call) => {
                let program = call.program.as_deref().and_then(|program| program.as_ref().ok());
                size_of::<SearchCall>() + program.map_or(0, Program::bytes)
            }
            _ => 0,
        };
        let children = self.children();
        size_of::<Self>() + own + children.into_iter().map(Self::bytes).sum::<usize>()
    }

    /// The child nodes.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Literal(_)
            | Self::Slot(_)
            | Self::Driver
            | Self::AllowsMultipleAllocations
            | Self::Attribute { .. } => Vec::new(),
            Self::Field { of, .. } | Self::Test { of, .. } => vec![of],
            Self::Index { of, key, .. } => vec![of, key],
            Self::And(left, right) | Self::Or(left, right) | Self::Compare { left, right, .. } => {
                vec![left, right]
            }
            Self::Not(operand) | Self::NotStrictlyFalse(operand) => vec![operand],
            Self::Conditional(branches) => branches.iter().collect(),
            Self::Call { arguments, .. } => arguments.iter().collect(),
            Self::Search(call) => call.arguments.iter().collect(),
            Self::OrElse { optional, otherwise, .. } => vec![optional, otherwise],
            Self::List(elements) => elements.iter().map(|(element, _)| element).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(k, v, _)| [k, v]).collect(),
            Self::Comprehension(loop_) => {
                let Comprehension { range, init, condition, step, result, two_variables: _ } =
                    &**loop_;
                vec![range, init, condition, step, result]
            }
            Self::Bind { value, body } => vec![value, body],
        }
    }
}
