//! The attributes of a device that an expression can read.
//!
//! Two devices that agree in these attributes, and in everything else that the expression reads,
//! have the same result. If the attributes cannot be determined, the expression counts as reading
//! all of them.

use std::collections::BTreeSet;

use super::node::{Comparison, Node};
use super::value::Value;

/// Attributes by their full names `domain/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mentions {
    These(BTreeSet<String>),
    Any,
}

impl Default for Mentions {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Mentions {
    pub(crate) fn add(&mut self, name: &str) {
        if let Self::These(names) = self
            && !names.contains(name)
        {
            names.insert(name.to_owned());
        }
    }

    /// Adds the attributes that an expression reads.
    pub(super) fn add_node(&mut self, node: &Node) {
        match node {
            Node::Attribute { name, .. } => self.add(name),
            Node::Field { of, field, .. } | Node::Test { of, field } => {
                self.member(of, Some(field));
            }
            Node::Index { of, key, .. } => {
                self.member(of, text(key));
                self.add_node(key);
            }
            Node::Compare { operator: Comparison::In, left, right } => {
                self.member(right, text(left));
                self.add_node(left);
            }
            // The device, or a map of its attributes, is used as a value.
            Node::Literal(Value::Device | Value::AttributeDomains | Value::AttributesOf(_)) => {
                *self = Self::Any;
            }
            other => other.children().into_iter().for_each(|child| self.add_node(child)),
        }
    }

    /// Adds a member access, or a test whether the member exists.
    fn member(&mut self, of: &Node, id: Option<&str>) {
        match (of, id) {
            (Node::Literal(Value::AttributesOf(domain)), Some(id)) => {
                self.add(&format!("{domain}/{id}"));
            }
            (Node::Literal(Value::Device), Some("driver" | "capacity")) => {}
            _ => self.add_node(of),
        }
    }
}

fn text(node: &Node) -> Option<&str> {
    match node {
        Node::Literal(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::cel::compile;

    #[test]
    fn attributes_that_expressions_read() {
        let d = "device.attributes[\"d\"]";
        let cases: &[(String, Option<&[&str]>)] = &[
            ("device.driver == \"d\"".into(), Some(&[])),
            ("device.capacity[\"d\"].mem.isGreaterThan(quantity(\"1\"))".into(), Some(&[])),
            (format!("{d}.a == {d}[\"b\"]"), Some(&["d/a", "d/b"])),
            (
                format!("{d}.?a.orValue(\"\") == \"x\" || {d}[?\"b\"].hasValue()"),
                Some(&["d/a", "d/b"]),
            ),
            (format!("has({d}.a) && \"b\" in {d}"), Some(&["d/a", "d/b"])),
            (format!("[1, 2].exists(x, x == {d}.a)"), Some(&["d/a"])),
            (format!("{d}.exists(k, k == \"a\")"), None),
            (format!("cel.bind(own, {d}, own.a == 1)"), None),
            ("device.attributes[device.driver].a == 1".into(), None),
            ("\"d\" in device.attributes".into(), None),
            (format!("{{\"a\": {d}}}.a.b == 1"), None),
        ];
        for (expression, expected) in cases {
            let mut mentions = Mentions::default();
            compile(expression, &Budget::unlimited()).unwrap().add_mentions(&mut mentions);
            let expected = expected.map_or(Mentions::Any, |names| {
                Mentions::These(names.iter().map(|name| (*name).to_owned()).collect())
            });
            assert_eq!(mentions, expected, "{expression}");
        }
    }
}
