//! Selects the NICs to publish by a CEL expression over a NIC's attributes, as upstream
//! does. Expressions of the same kind select the NICs that claims can share, and give NICs
//! roles and rails.
//!
//! `attributes` is a map of `resource.k8s.io/v1` device attributes by fully
//! qualified name, with the fields of the Go type: `StringValue`, `IntValue`,
//! `BoolValue`, `VersionValue`. As in upstream, a NIC is kept if the expression fails on
//! it, and dropped if the result is not a boolean. CEL's time functions are left out: no
//! attribute is a time, and they would add the time zone database to the binary.

use crate::attribute::{self, Attributes};
use cel::objects::{Key, Map};
use cel::parser::{Expression, PrattParser};
use cel::{Context, Env, Value};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use topology_graph::NicRole;

/// Upstream's default: drops veth interfaces, which belong to pods.
pub const DEFAULT: &str =
    r#"!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue != "veth""#;

/// A compiled expression. An empty expression keeps everything.
#[derive(Clone, Default)]
pub struct Filter {
    text: String,
    compiled: Option<Arc<Compiled>>,
}

/// An expression, and the functions that it can call.
struct Compiled {
    expression: Expression,
    functions: Arc<Env>,
}

/// The text is not a valid CEL expression.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a valid CEL expression: {reason}")]
pub struct FilterError {
    text: String,
    reason: String,
}

impl Filter {
    /// Whether there is no expression; the filter then keeps and selects everything.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_none()
    }

    /// Whether the filter keeps a device. It does if the expression fails on the device.
    pub fn keeps(&self, nic: &Attributes) -> bool {
        self.verdict(nic).unwrap_or(true)
    }

    /// The role that the expression gives a NIC; `None` if there is no expression, if it
    /// fails, or if its result is no role.
    pub fn role(&self, nic: &Attributes) -> Option<NicRole> {
        match self.compiled.as_ref()?.evaluate(nic)? {
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The rail that the expression gives a NIC; `None` if there is no expression, if it fails, or
    /// if its result is no number of a rail.
    pub fn rail(&self, nic: &Attributes) -> Option<u32> {
        match self.compiled.as_ref()?.evaluate(nic)? {
            Value::Int(number) => u32::try_from(number).ok(),
            Value::UInt(number) => u32::try_from(number).ok(),
            _ => None,
        }
    }

    /// Whether the filter selects a NIC. It does not if the expression fails on it.
    pub fn selects(&self, nic: &Attributes) -> bool {
        self.verdict(nic).unwrap_or(false)
    }

    /// The expression's result for a NIC; `None` if it fails.
    fn verdict(&self, nic: &Attributes) -> Option<bool> {
        let Some(compiled) = &self.compiled else { return Some(true) };
        Some(compiled.evaluate(nic)? == Value::Bool(true))
    }
}

impl Compiled {
    /// The expression's value for a NIC; `None` if it fails.
    fn evaluate(&self, nic: &Attributes) -> Option<Value> {
        let mut context = Context::with_env(Arc::clone(&self.functions));
        context.add_variable_from_value("attributes", attributes(nic));
        Value::resolve(&self.expression, &context).ok()
    }
}

fn attributes(nic: &Attributes) -> Value {
    map(nic.iter().map(|(name, value)| (name.as_str(), fields(value))))
}

/// Go's fields are pointers: an unset field is null.
fn fields(value: &attribute::Value) -> Value {
    let mut fields =
        ["StringValue", "VersionValue", "IntValue", "BoolValue"].map(|field| (field, Value::Null));
    match value {
        attribute::Value::Text(text) => fields[0].1 = Value::String(Arc::new(text.as_str().into())),
        attribute::Value::Int(number) => fields[2].1 = Value::Int((*number).into()),
        attribute::Value::Bool(bool) => fields[3].1 = Value::Bool(*bool),
    }
    map(fields.into_iter())
}

fn map<'a>(entries: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let map: HashMap<Key, Value> = entries.map(|(name, value)| (Key::from(name), value)).collect();
    Value::Map(Map { map: Arc::new(map) })
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.trim().is_empty() {
            return Ok(Self { text: String::new(), compiled: None });
        }
        let expression = PrattParser::new().parse(text).map_err(|error| FilterError {
            text: text.to_owned(),
            reason: error.to_string().lines().next().unwrap_or_default().to_owned(),
        })?;
        let compiled = Compiled { expression, functions: Arc::new(Env::stdlib()) };
        Ok(Self { text: text.to_owned(), compiled: Some(Arc::new(compiled)) })
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::attributes;
    use crate::decision::decide;
    use crate::live;

    /// The attributes of p4d's NICs.
    fn nics() -> Vec<Attributes> {
        decide(&live::facts("eks-p4d")).nics.iter().map(attributes).collect()
    }

    /// How many of p4d's seven NICs (four EFA, three ENA on Ethernet) are kept.
    #[test]
    fn expressions_on_a_live_machine() {
        let nics = nics();
        for (expression, expected) in [
            (DEFAULT, 7),
            ("", 7),
            ("true", 7),
            ("false", 0),
            (r#"attributes["dra.net/rdma"].BoolValue"#, 4),
            (r#"attributes["dra.net/rdma"].BoolValue == false"#, 3),
            (r#"attributes["dra.net/numaNode"].IntValue == 0"#, 3),
            (r#"attributes["dra.net/pciDevice"].StringValue.startsWith("Elastic Fabric")"#, 4),
            (
                r#"!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue != "device""#,
                4,
            ),
            (r#"attributes.exists(name, name.endsWith("/rdma"))"#, 7),
            (r#"attributes["dra.net/pciDevice"].StringValue.matches("^Elastic F.*\\(EFA\\)$")"#, 4),
            (r#"attributes["dra.net/numaNode"].IntValue in [0, 5] ? true : false"#, 3),
            ("size(attributes) > 1000 || has(attributes.none)", 0),
            // An expression that fails keeps the NIC; a result that is no boolean drops it.
            (r#"attributes["dra.net/ifName"].StringValue == "ens65""#, 5),
            (r#"attributes["dra.net/rdma"].StringValue == "yes""#, 0),
            (r#"attributes["dra.net/rdma"].StringValue != "yes""#, 7),
            (r#""yes""#, 0),
        ] {
            let filter: Filter = expression.parse().unwrap();
            let kept = nics.iter().filter(|nic| filter.keeps(nic)).count();
            assert_eq!(kept, expected, "{expression}");
        }
    }

    #[test]
    fn an_expression_gives_roles() {
        let nics = nics();
        let roles = |expression: &str| {
            let filter: Filter = expression.parse().unwrap();
            nics.iter().filter_map(|nic| filter.role(nic)).collect::<Vec<_>>()
        };
        let numa = r#"attributes["dra.net/numaNode"].IntValue == 0 ? "storage" : """#;
        assert_eq!(roles(numa), [NicRole::Storage; 3]);
        let without = r#"attributes["dra.net/ifName"].StringValue != "" ? "management" : """#;
        assert_eq!(roles(without), [NicRole::Management; 3], "it fails on the others");
        for none in ["", "true", r#""gpu""#] {
            assert_eq!(roles(none), [], "{none}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for text in ["attributes[", "a ==", "\"", ")"] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}` is not a valid CEL expression")),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1);
        }
    }
}
