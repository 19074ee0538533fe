//! Nodes and node selectors.
//!
//! Follows `NodeMatches` in `pools_incubating.go` and
//! `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The facts about a node that the allocator needs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Node {
    /// The name.
    pub name: Arc<str>,
    /// The labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<Arc<str>>,
}

impl Node {
    /// Creates a node of which only the name is known.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }
}

/// The nodes that a slice or a device belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeTarget {
    /// The node with this name.
    Node(Arc<str>),
    /// All nodes.
    All,
    /// The nodes that a selector matches.
    Selector(NodeSelector),
}

impl NodeTarget {
    /// Returns true if the node is one of them.
    pub(crate) fn matches(&self, node: &Node) -> Result<bool, SelectorError> {
        match self {
            Self::Node(name) => Ok(*name == node.name),
            Self::All => Ok(true),
            Self::Selector(selector) => selector.matches(node),
        }
    }
}

/// A node selector: at least one term must match.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeSelector {
    /// The terms, `ORed`.
    pub terms: Vec<NodeSelectorTerm>,
}

/// A term: all its requirements must match.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeSelectorTerm {
    /// Requirements on fields of the node; only `metadata.name` is supported.
    pub match_fields: Vec<Requirement>,
    /// Requirements on labels of the node.
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on a label or a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label or field.
    pub key: Arc<str>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: Arc<str>,
    /// The values to compare with.
    pub values: Vec<Arc<str>>,
}

/// A node selector cannot be evaluated; Kubernetes then fails the pod on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requirement `{requirement}` of a node selector is invalid: {problem}")]
pub struct SelectorError {
    /// The requirement.
    pub requirement: String,
    /// The reason.
    pub problem: &'static str,
}

impl NodeSelector {
    /// The selector for a single node, as Kubernetes writes it.
    pub fn of_node(name: &Arc<str>) -> Self {
        static WORDS: LazyLock<[Arc<str>; 2]> =
            LazyLock::new(|| ["metadata.name".into(), "In".into()]);
        let [key, operator] = WORDS.clone();
        let requirement = Requirement { key, operator, values: vec![name.clone()] };
        let match_fields = vec![requirement];
        Self { terms: vec![NodeSelectorTerm { match_fields, match_expressions: Vec::new() }] }
    }

    /// Returns true if a node matches. All terms are checked for errors before any is evaluated.
    pub fn matches(&self, node: &Node) -> Result<bool, SelectorError> {
        for term in &self.terms {
            term.check()?;
        }
        Ok(self.terms.iter().any(|term| term.matches(node)))
    }
}

impl NodeSelectorTerm {
    fn check(&self) -> Result<(), SelectorError> {
        self.match_expressions.iter().try_for_each(Requirement::check_label)?;
        self.match_fields.iter().try_for_each(Requirement::check_field)
    }

    /// An empty term matches nothing.
    fn matches(&self, node: &Node) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty
            && self.match_expressions.iter().all(|r| r.matches_label(node.label(&r.key)))
            && self.match_fields.iter().all(|r| {
                // An unknown field has an empty value (`fields.Set.Get`).
                r.matches_field(if &*r.key == "metadata.name" { &node.name } else { "" })
            })
    }
}

impl Requirement {
    fn invalid(&self, problem: &'static str) -> Result<(), SelectorError> {
        Err(SelectorError { requirement: self.to_string(), problem })
    }

    /// Validates the requirement (`labels.NewRequirement`).
    fn check_label(&self) -> Result<(), SelectorError> {
        match &*self.operator {
            "In" | "NotIn" if self.values.is_empty() => self.invalid("a value is required"),
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                self.invalid("values are not allowed")
            }
            "Gt" | "Lt" if self.number().is_none() => {
                self.invalid("exactly one integer is required")
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {
                self.check_key().and_then(|()| self.check_values())
            }
            _ => self.invalid("unknown operator"),
        }
    }

    fn check_key(&self) -> Result<(), SelectorError> {
        let name = self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name);
        if name.is_empty() || !is_label_value(name) {
            return self.invalid("invalid label key");
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), SelectorError> {
        if self.values.iter().all(|value| is_label_value(value)) {
            return Ok(());
        }
        self.invalid("invalid label value")
    }

    fn check_field(&self) -> Result<(), SelectorError> {
        match &*self.operator {
            "In" | "NotIn" if self.values.len() == 1 => Ok(()),
            "In" | "NotIn" => self.invalid("a field requires exactly one value"),
            _ => self.invalid("a field supports only `In` and `NotIn`"),
        }
    }

    fn number(&self) -> Option<i64> {
        match &*self.values {
            [value] => value.parse().ok(),
            _ => None,
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|known| &**known == value)
    }

    fn matches_label(&self, label: Option<&str>) -> bool {
        match &*self.operator {
            "In" => label.is_some_and(|value| self.has(value)),
            "NotIn" => !label.is_some_and(|value| self.has(value)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => self.compare(label) == Some(Ordering::Greater),
            "Lt" => self.compare(label) == Some(Ordering::Less),
            _ => false,
        }
    }

    /// How a label compares with the requirement's value; `None` if one is not a number.
    fn compare(&self, label: Option<&str>) -> Option<Ordering> {
        Some(label?.parse::<i64>().ok()?.cmp(&self.number()?))
    }

    fn matches_field(&self, field: &str) -> bool {
        self.has(field) == (&*self.operator == "In")
    }

    /// Returns true if two requirements are equal, ignoring the order of values.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.operator == other.operator
            && self.values.iter().all(|value| other.has(value))
            && other.values.iter().all(|value| self.has(value))
    }
}

/// Returns true if the text is a valid label value: at most 63 letters, digits, `-`, `_` or `.`,
/// with a letter or digit at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.len() <= 63
        && !text.starts_with(['-', '_', '.'])
        && !text.ends_with(['-', '_', '.'])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator)?;
        if !self.values.is_empty() {
            write!(f, " [{}]", self.values.join(", "))?;
        }
        Ok(())
    }
}
