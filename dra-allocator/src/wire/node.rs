//! Nodes and node selectors.

use k8s_openapi::api::core::v1;

use super::error::WireError;
use super::interner::Interner;
use crate::node::{Node, NodeSelector, NodeSelectorTerm, Requirement};

pub(crate) fn node(wire: &v1::Node, texts: &mut Interner) -> Result<Node, WireError> {
    let name = wire.metadata.name.as_ref().ok_or(WireError::NoName("node"))?;
    let labels = wire.metadata.labels.iter().flatten();
    let declared = wire.status.as_ref().and_then(|status| status.declared_features.as_ref());
    Ok(Node {
        name: texts.text(name),
        labels: labels.map(|(key, value)| (texts.text(key), texts.text(value))).collect(),
        declared_features: texts.texts(declared),
    })
}

pub(super) fn selector(wire: &v1::NodeSelector, texts: &mut Interner) -> NodeSelector {
    let terms = wire.node_selector_terms.iter().map(|term| {
        let [match_fields, match_expressions] = [&term.match_fields, &term.match_expressions]
            .map(|list| list.iter().flatten().map(|wire| requirement(wire, texts)).collect());
        NodeSelectorTerm { match_fields, match_expressions }
    });
    NodeSelector { terms: terms.collect() }
}

fn requirement(wire: &v1::NodeSelectorRequirement, texts: &mut Interner) -> Requirement {
    Requirement {
        key: texts.text(&wire.key),
        operator: texts.text(&wire.operator),
        values: texts.texts(wire.values.as_ref()),
    }
}

impl From<&NodeSelector> for v1::NodeSelector {
    fn from(selector: &NodeSelector) -> Self {
        let terms = selector.terms.iter().map(|term| v1::NodeSelectorTerm {
            match_fields: requirements(&term.match_fields),
            match_expressions: requirements(&term.match_expressions),
        });
        Self { node_selector_terms: terms.collect() }
    }
}

fn requirements(own: &[Requirement]) -> Option<Vec<v1::NodeSelectorRequirement>> {
    let wire = own.iter().map(|requirement| v1::NodeSelectorRequirement {
        key: requirement.key.to_string(),
        operator: requirement.operator.to_string(),
        values: super::result::list(&requirement.values),
    });
    (!own.is_empty()).then(|| wire.collect())
}
