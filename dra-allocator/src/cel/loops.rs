//! The loops of the two-variable macros.
//!
//! Follows `ext.TwoVarComprehensions` of cel-go: `all`, `exists`, `existsOne`, `transformList`,
//! `transformMap` and `transformMapEntry`.

use super::functions;
use super::node::{Comparison, Comprehension, Node};
use super::value::Value;

fn slot(number: usize) -> Node {
    Node::Slot(number)
}

fn literal(value: impl Into<Value>) -> Node {
    Node::Literal(value.into())
}

fn call(name: &str, arguments: Vec<Node>) -> Option<Node> {
    let function = functions::find(name, false, arguments.len())?;
    Some(Node::Call { function, arguments })
}

fn conditional(test: Node, yes: Node, no: Node) -> Node {
    Node::Conditional(Box::new([test, yes, no]))
}

fn not_strictly_false(node: Node) -> Node {
    Node::NotStrictlyFalse(Box::new(node))
}

fn is_one(number: Node) -> Node {
    let (left, right) = (Box::new(number), Box::new(Node::Literal(Value::Int(1))));
    Node::Compare { operator: Comparison::Equal, left, right }
}

/// The loop of a macro; `accumulator` is the slot of its result. The caller sets the range.
pub(crate) fn two_variable_loop(
    name: &str,
    mut arguments: Vec<Node>,
    accumulator: usize,
) -> Option<Comprehension> {
    let result = || slot(accumulator);
    let last = arguments.pop()?;
    let filter = arguments.pop();
    let always = literal(true);
    let (init, condition, step, end) = match name {
        "all" => {
            let step = Node::And(Box::new(result()), Box::new(last));
            (literal(true), not_strictly_false(result()), step, result())
        }
        "exists" => {
            let step = Node::Or(Box::new(result()), Box::new(last));
            (literal(false), not_strictly_false(Node::Not(Box::new(result()))), step, result())
        }
        "existsOne" | "exists_one" => {
            let one_more = call("_+_", vec![result(), Node::Literal(Value::Int(1))])?;
            let step = conditional(last, one_more, result());
            (Node::Literal(Value::Int(0)), always, step, is_one(result()))
        }
        "transformList" => {
            let one = Node::List(vec![(last, false)]);
            let grown = call("_+_", vec![result(), one])?;
            (Node::List(Vec::new()), always, filtered(filter, grown, result()), result())
        }
        "transformMap" => {
            let grown = call("@put", vec![result(), slot(accumulator + 1), last])?;
            (Node::Map(Vec::new()), always, filtered(filter, grown, result()), result())
        }
        "transformMapEntry" => {
            let grown = call("@put", vec![result(), last])?;
            (Node::Map(Vec::new()), always, filtered(filter, grown, result()), result())
        }
        _ => return None,
    };
    let range = Node::Literal(Value::Null);
    Some(Comprehension { range, init, condition, step, result: end, two_variables: true })
}

fn filtered(filter: Option<Node>, grown: Node, result: Node) -> Node {
    match filter {
        None => grown,
        Some(filter) => conditional(filter, grown, result),
    }
}
