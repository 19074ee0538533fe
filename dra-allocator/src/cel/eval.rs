//! Evaluates a compiled expression on a device.
//!
//! `&&`, `||` and the macros built on them absorb errors as CEL defines it: if one side decides the
//! result, an error on the other side is ignored. Everything else is strict.

use std::cmp::Ordering;
use std::sync::Arc;

use super::error::{ErrorClass, RuntimeError};
use super::node::{Comparison, Comprehension, Node};
use super::order::compare;
use super::search::search;
use super::value::{Value, find};
use super::work::Work;
use crate::budget::Budget;
use crate::device::{AttributeValue, Device};
use crate::name::QualifiedName;

type Evaluated = Result<Value, RuntimeError>;

/// Evaluates an expression on a device.
pub(crate) fn evaluate(root: &Node, device: &Device, budget: &Budget<'_>) -> Evaluated {
    Evaluator { device, slots: Vec::new(), work: Work::new(budget) }.node(root)
}

/// The state of an evaluation.
struct Evaluator<'a> {
    device: &'a Device,
    slots: Vec<Evaluated>,
    work: Work<'a>,
}

impl Evaluator<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<Value>, RuntimeError> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn node(&mut self, node: &Node) -> Evaluated {
        self.work.charge(1)?;
        match node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Slot(slot) => self.slots[*slot].clone(),
            Node::Driver => Ok(Value::String(self.device.id.driver.clone())),
            Node::AllowsMultipleAllocations => {
                Ok(Value::Bool(self.device.allows_multiple_allocations()))
            }
            Node::Attribute { name, id } => match self.device.attribute(name) {
                Some(value) => Value::of_attribute(value),
                None => Err(RuntimeError::no_such_key(id)),
            },
            Node::Field { of, field, optional } => {
                let of = self.node(of)?;
                self.member(&of, &Value::String(field.clone()), *optional)
            }
            Node::Test { of, field } => {
                let of = self.node(of)?;
                self.find(&of, &Value::String(field.clone()))
                    .map(|found| Value::Bool(found.is_some()))
            }
            Node::Index { of, key, optional } => {
                let (of, key) = (self.node(of)?, self.node(key)?);
                self.member(&of, &key, *optional)
            }
            Node::And(left, right) => self.logic(left, right, false),
            Node::Or(left, right) => self.logic(left, right, true),
            Node::Not(operand) => match self.node(operand)? {
                Value::Bool(value) => Ok(Value::Bool(!value)),
                _ => Err(RuntimeError::no_such_overload()),
            },
            Node::NotStrictlyFalse(operand) => {
                Ok(Value::Bool(!matches!(self.node(operand), Ok(Value::Bool(false)))))
            }
            Node::Conditional(branches) => match self.node(&branches[0])? {
                Value::Bool(true) => self.node(&branches[1]),
                Value::Bool(false) => self.node(&branches[2]),
                _ => Err(RuntimeError::no_such_overload()),
            },
            Node::Compare { operator, left, right } => {
                if let Some(verdict) = self.compare_text(*operator, left, right) {
                    return Ok(Value::Bool(verdict));
                }
                let (left, right) = (self.node(left)?, self.node(right)?);
                self.work.charge_value(&left)?;
                self.work.charge_value(&right)?;
                self.compare(*operator, &left, &right).map(Value::Bool)
            }
            Node::Call { function, arguments } => {
                let arguments = self.nodes(arguments)?;
                self.work.charge_call(function.name, &arguments)?;
                let result = (function.call)(&arguments, self.device)?;
                self.work.charge_value(&result)?;
                Ok(result)
            }
            Node::Search(call) => {
                let arguments = self.nodes(&call.arguments)?;
                search(call.function, &arguments, call.program.as_ref(), &mut self.work)
            }
            Node::OrElse { optional, otherwise, unwrap } => {
                self.or_else(optional, otherwise, *unwrap)
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::Bind { value, body } => {
                let value = self.node(value);
                self.slots.push(value);
                let result = self.node(body);
                self.slots.pop();
                result
            }
        }
    }

    /// Evaluates `&&` or `||`. `decisive` is the value that decides the result: false for `&&`,
    /// true for `||`.
    fn logic(&mut self, left: &Node, right: &Node, decisive: bool) -> Evaluated {
        let left = self.node(left);
        if matches!(left, Ok(Value::Bool(value)) if value == decisive) {
            return left;
        }
        let right = self.node(right);
        match (left, right) {
            (_, Ok(Value::Bool(value))) if value == decisive => Ok(Value::Bool(decisive)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decisive)),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(RuntimeError::no_such_overload()),
        }
    }

    /// Fast path for the comparison that almost every selector begins with, `device.driver == "…"`
    /// or `device.attributes["…"].x == "…"`, without building values.
    fn compare_text(&self, operator: Comparison, left: &Node, right: &Node) -> Option<bool> {
        let Node::Literal(Value::String(right)) = right else { return None };
        let left = match left {
            Node::Driver => &self.device.id.driver,
            Node::Attribute { name, .. } => match self.device.attribute(name) {
                Some(AttributeValue::String(text)) => text,
                _ => return None,
            },
            _ => return None,
        };
        match operator {
            Comparison::Equal => Some(left == right),
            Comparison::NotEqual => Some(left != right),
            _ => None,
        }
    }

    fn compare(
        &self,
        operator: Comparison,
        left: &Value,
        right: &Value,
    ) -> Result<bool, RuntimeError> {
        Ok(match operator {
            Comparison::Equal => self.equals(left, right)?,
            Comparison::NotEqual => !self.equals(left, right)?,
            Comparison::Less => compare(left, right)? == Some(Ordering::Less),
            Comparison::LessOrEqual => {
                matches!(compare(left, right)?, Some(Ordering::Less | Ordering::Equal))
            }
            Comparison::Greater => compare(left, right)? == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => {
                matches!(compare(left, right)?, Some(Ordering::Greater | Ordering::Equal))
            }
            Comparison::In => self.contains(right, left)?,
        })
    }

    fn equals(&self, left: &Value, right: &Value) -> Result<bool, RuntimeError> {
        left.built(self.device)?.equals(&right.built(self.device)?)
    }

    fn contains(&self, container: &Value, item: &Value) -> Result<bool, RuntimeError> {
        match container {
            Value::List(values) => {
                for value in values.iter() {
                    if self.equals(value, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            // Unlike a look-up, `in` distinguishes the domains that the device has.
            Value::AttributeDomains | Value::CapacityDomains => {
                let Value::Map(entries) = container.built(self.device)? else { return Ok(false) };
                Ok(find(&entries, item)?.is_some())
            }
            Value::Map(_) | Value::AttributesOf(_) | Value::CapacityOf(_) => {
                Ok(self.find(container, item)?.is_some())
            }
            _ => Err(RuntimeError::no_such_overload()),
        }
    }

    /// `of.key`, `of[key]` and their optional forms.
    fn member(&self, of: &Value, key: &Value, optional: bool) -> Evaluated {
        if let Value::Optional(inner) = of {
            return match inner {
                None => Ok(Value::Optional(None)),
                Some(inner) => self.member(inner, key, true),
            };
        }
        if let Value::List(values) = of {
            return element(values, key, optional);
        }
        match (self.find(of, key)?, optional) {
            (Some(value), true) => Ok(Value::some(value)),
            (Some(value), false) => Ok(value),
            (None, true) => Ok(Value::Optional(None)),
            (None, false) => Err(RuntimeError::no_such_key(key_text(key))),
        }
    }

    /// The value of a key of a map. A missing domain of the device is an empty map.
    fn find(&self, of: &Value, key: &Value) -> Result<Option<Value>, RuntimeError> {
        let text = match key {
            Value::String(text) => Some(text),
            _ => None,
        };
        match (of, text) {
            (Value::Map(entries), _) => Ok(find(entries, key)?.cloned()),
            (Value::AttributeDomains, Some(domain)) => {
                Ok(Some(Value::AttributesOf(domain.clone())))
            }
            (Value::CapacityDomains, Some(domain)) => Ok(Some(Value::CapacityOf(domain.clone()))),
            (Value::AttributesOf(domain), Some(id)) => {
                let value = self.device.attribute(&format!("{domain}/{id}"));
                value.map(Value::of_attribute).transpose()
            }
            (Value::CapacityOf(domain), Some(id)) => {
                let mut capacity = self.device.capacity.iter();
                let driver = &self.device.id.driver;
                let found = capacity.find(|(name, _)| is_named(name, driver, domain, id));
                Ok(found.map(|(_, capacity)| Value::of_capacity(capacity)))
            }
            (Value::AttributeDomains | Value::CapacityDomains, None) => {
                Ok(Some(Value::Map(Arc::default())))
            }
            (Value::AttributesOf(_) | Value::CapacityOf(_), None) | (Value::Optional(None), _) => {
                Ok(None)
            }
            (Value::Device, Some(field)) => Ok(self.device_field(field)),
            (Value::Optional(Some(inner)), _) => self.find(inner, key),
            // Indexing a value that is not a container: cel-go reports a missing key.
            (
                Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Bool(_)
                | Value::String(_),
                _,
            ) => Err(RuntimeError::no_such_key(key_text(key))),
            _ => Err(RuntimeError::no_such_overload()),
        }
    }

    fn device_field(&self, field: &str) -> Option<Value> {
        match field {
            "attributes" => Some(Value::AttributeDomains),
            "capacity" => Some(Value::CapacityDomains),
            "driver" => Some(Value::String(self.device.id.driver.clone())),
            "allowMultipleAllocations" => {
                Some(Value::Bool(self.device.allows_multiple_allocations()))
            }
            _ => None,
        }
    }

    fn or_else(&mut self, optional: &Node, otherwise: &Node, unwrap: bool) -> Evaluated {
        let value = self.node(optional)?;
        match value {
            Value::Optional(Some(inner)) if unwrap => Ok((*inner).clone()),
            Value::Optional(Some(_)) => Ok(value),
            Value::Optional(None) => self.node(otherwise),
            _ => Err(RuntimeError::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &[(Node, bool)]) -> Evaluated {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            match (self.node(element)?, optional) {
                (Value::Optional(inner), true) => values.extend(inner.as_deref().cloned()),
                (_, true) => return Err(RuntimeError::no_such_overload()),
                (value, false) => values.push(value),
            }
        }
        let list = Value::list(values);
        self.work.charge_value(&list)?;
        Ok(list)
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Evaluated {
        let mut built: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let (key, value) = (self.node(key)?, self.node(value)?);
            let value = match (value, optional) {
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (Value::Optional(None), true) => continue,
                (_, true) => return Err(RuntimeError::no_such_overload()),
                (value, false) => value,
            };
            if find(&built, &key)?.is_some() {
                let text = format!("Failed with repeated key: {}", key_text(&key));
                return Err(RuntimeError::invalid(text));
            }
            built.push((key, value));
        }
        let map = Value::Map(built.into());
        self.work.charge_value(&map)?;
        Ok(map)
    }

    fn comprehension(&mut self, loop_: &Comprehension) -> Evaluated {
        let range = self.node(&loop_.range)?.built(self.device)?;
        self.work.charge_value(&range)?;
        let turns = turns(&range, loop_.two_variables)?;
        let base = self.slots.len();
        let accumulator = self.node(&loop_.init);
        self.slots.push(accumulator);
        for (first, second) in turns {
            self.work.charge(1)?;
            self.slots.truncate(base + 1);
            self.slots.push(Ok(first));
            self.slots.extend(second.map(Ok));
            if !matches!(self.node(&loop_.condition), Ok(Value::Bool(true))) {
                break;
            }
            self.slots[base] = self.node(&loop_.step);
        }
        self.slots.truncate(base + 1);
        let result = self.node(&loop_.result);
        self.slots.truncate(base);
        result
    }
}

/// The values of the loop variables, per iteration: elements or keys; with two variables, indices
/// or keys with elements or values.
fn turns(range: &Value, two: bool) -> Result<Vec<(Value, Option<Value>)>, RuntimeError> {
    match range {
        Value::List(values) if two => Ok(values
            .iter()
            .enumerate()
            .map(|(i, value)| (Value::Int(i64::try_from(i).unwrap_or(i64::MAX)), Some(value)))
            .map(|(index, value)| (index, value.cloned()))
            .collect()),
        Value::List(values) => Ok(values.iter().map(|value| (value.clone(), None)).collect()),
        Value::Map(entries) => Ok(entries
            .iter()
            .map(|(key, value)| (key.clone(), two.then(|| value.clone())))
            .collect()),
        other => {
            let text = format!("got '{}', expected iterable type", other.type_name());
            Err(RuntimeError::new(ErrorClass::NoSuchOverload, text))
        }
    }
}

fn element(values: &[Value], key: &Value, optional: bool) -> Evaluated {
    #[allow(clippy::cast_possible_truncation, reason = "the fraction is checked to be none")]
    let index = match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) if index.fract() == 0.0 => Some(*index as i64),
        _ => return Err(RuntimeError::no_such_overload()),
    };
    let found = index.and_then(|index| values.get(usize::try_from(index).ok()?));
    match (found, optional) {
        (Some(value), true) => Ok(Value::some(value.clone())),
        (Some(value), false) => Ok(value.clone()),
        (None, true) => Ok(Value::Optional(None)),
        (None, false) => {
            Err(RuntimeError::out_of_range(format!("index out of bounds: {}", key_text(key))))
        }
    }
}

/// Returns true if the published name is `domain/id`.
fn is_named(name: &QualifiedName, driver: &str, domain: &str, id: &str) -> bool {
    name.domain().unwrap_or(driver) == domain && name.id() == id
}

fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}
