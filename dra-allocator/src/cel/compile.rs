//! Compiles a parsed expression into an evaluable tree: names become slots, field accesses on the
//! device become look-ups, calls become function pointers.

use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr,
    SelectExpr, operators,
};

use super::error::CompileError;
use super::functions;
use super::loops::two_variable_loop;
use super::node::{Comparison, CompiledPattern, Comprehension, Node, SearchCall, SearchFunction};
use super::parse::parse;
use super::re2::{self, PatternError};
use super::value::Value;
use crate::budget::{Budget, Spent};

/// The maximum size of all literal patterns of an expression together, in bytes.
const MAX_PATTERNS: usize = 2 << 20;

/// The work of parsing a byte of an expression: some microseconds.
const PARSE: u64 = 200;

/// Compiles an expression.
pub(crate) fn program(expression: &str, budget: &Budget<'_>) -> Result<Node, CompileError> {
    let length = expression.len() as u64;
    budget.charge(1 + length * PARSE).map_err(|Spent| CompileError::OutOfBudget)?;
    let tree = parse(expression)?;
    Scope { names: Vec::new(), patterns: 0, budget }.node(&tree)
}

struct Scope<'b> {
    /// The visible variables, outermost first; a slot is an index into them.
    names: Vec<String>,
    /// The size of the patterns so far, in bytes.
    patterns: usize,
    budget: &'b Budget<'b>,
}

type Compiled = Result<Node, CompileError>;

impl Scope<'_> {
    fn node(&mut self, tree: &IdedExpr) -> Compiled {
        match &tree.expr {
            Expr::Literal(literal) => Ok(Node::Literal(self::literal(literal))),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(structure) => {
                let name = &structure.type_name;
                Err(CompileError::Invalid(format!("undeclared reference to '{name}'")))
            }
            Expr::Unspecified => Err(CompileError::Invalid("empty expression".to_owned())),
        }
    }

    fn boxed(&mut self, tree: &IdedExpr) -> Result<Box<Node>, CompileError> {
        self.node(tree).map(Box::new)
    }

    fn identifier(&self, name: &str) -> Compiled {
        if let Some(slot) = self.names.iter().rposition(|known| known == name) {
            return Ok(Node::Slot(slot));
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        match name {
            "device" => Ok(Node::Literal(Value::Device)),
            "bool" | "int" | "uint" | "double" | "string" | "bytes" | "list" | "map"
            | "null_type" | "type" => Ok(Node::Literal(Value::Type(name.into()))),
            _ => Err(undeclared(name)),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Compiled {
        let of = self.node(&select.operand)?;
        if select.test {
            return Ok(Node::Test { of: Box::new(of), field: select.field.as_str().into() });
        }
        Self::field(of, &select.field, false)
    }

    fn field(of: Node, field: &str, optional: bool) -> Compiled {
        if optional {
            return Ok(Node::Field { of: Box::new(of), field: field.into(), optional });
        }
        match &of {
            Node::Literal(Value::Device) => device_field(field),
            Node::Literal(Value::AttributesOf(domain)) => {
                Ok(Node::Attribute { name: format!("{domain}/{field}").into(), id: field.into() })
            }
            _ => Ok(Node::Field { of: Box::new(of), field: field.into(), optional }),
        }
    }

    fn index(of: Node, key: Node, optional: bool) -> Compiled {
        match (&of, &key) {
            (Node::Literal(Value::AttributeDomains), Node::Literal(Value::String(domain)))
                if !optional =>
            {
                Ok(Node::Literal(Value::AttributesOf(domain.clone())))
            }
            (Node::Literal(Value::CapacityDomains), Node::Literal(Value::String(domain)))
                if !optional =>
            {
                Ok(Node::Literal(Value::CapacityOf(domain.clone())))
            }
            (Node::Literal(Value::AttributesOf(_)), Node::Literal(Value::String(id)))
                if !optional =>
            {
                let id = id.clone();
                Self::field(of, &id, false)
            }
            _ => Ok(Node::Index { of: Box::new(of), key: Box::new(key), optional }),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Compiled {
        if call.target.is_none() {
            if let Some(node) = self.operator(&call.func_name, &call.args)? {
                return Ok(node);
            }
            return self.function(None, &call.func_name, &call.args);
        }
        let target = call.target.as_deref();
        match target.map(|target| &target.expr) {
            Some(Expr::Ident(name)) if name == "cel" && call.func_name == "bind" => {
                self.bind(&call.args)
            }
            // A function with a namespace: `sets.contains`, `lists.range`.
            Some(Expr::Ident(name)) if functions::is_namespace(name) && !self.knows(name) => {
                let name = format!("{name}.{}", call.func_name);
                self.function(None, &name, &call.args)
            }
            _ => self.member(target, call),
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    fn member(&mut self, target: Option<&IdedExpr>, call: &CallExpr) -> Compiled {
        let Some(target) = target else { return Err(undeclared(&call.func_name)) };
        match (call.func_name.as_str(), &*call.args) {
            ("or" | "orValue", [otherwise]) => Ok(Node::OrElse {
                optional: self.boxed(target)?,
                otherwise: self.boxed(otherwise)?,
                unwrap: call.func_name == "orValue",
            }),
            (name, [key, value, rest @ ..]) if is_two_variable_macro(name, rest.len()) => {
                self.two_variable_macro(target, name, [key, value], rest)
            }
            (name @ ("optMap" | "optFlatMap"), [variable, body]) => {
                self.optional_macro(target, name == "optMap", variable, body)
            }
            (name, arguments) => self.function(Some(target), name, arguments),
        }
    }

    fn function(
        &mut self,
        target: Option<&IdedExpr>,
        name: &str,
        arguments: &[IdedExpr],
    ) -> Compiled {
        let count = arguments.len() + usize::from(target.is_some());
        if let Some(function) = SearchFunction::called(name, target.is_some(), count) {
            let arguments = target.into_iter().chain(arguments).map(|tree| self.node(tree));
            let arguments: Vec<_> = arguments.collect::<Result<_, _>>()?;
            let program = self.literal_pattern(arguments.get(1))?;
            return Ok(Node::Search(Box::new(SearchCall { function, arguments, program })));
        }
        let function = functions::find(name, target.is_some(), count);
        let Some(function) = function else {
            return Err(if functions::is_unsupported(name) {
                CompileError::Unsupported(name.to_owned())
            } else {
                undeclared(name)
            });
        };
        let arguments = target.into_iter().chain(arguments).map(|tree| self.node(tree));
        let arguments: Vec<_> = arguments.collect::<Result<_, _>>()?;
        Ok(Node::Call { function, arguments })
    }

    /// Compiles a literal pattern. Kubernetes compiles it with the expression too, whether it is
    /// evaluated or not (`ValidateRegexLiterals` and `RegexOptimization` of cel-go).
    fn literal_pattern(
        &mut self,
        pattern: Option<&Node>,
    ) -> Result<Option<CompiledPattern>, CompileError> {
        let Some(Node::Literal(Value::String(pattern))) = pattern else { return Ok(None) };
        let program = re2::compile(pattern, self.budget);
        match &program {
            Err(PatternError::Syntax(error)) => {
                return Err(CompileError::Invalid(error.to_string()));
            }
            Err(PatternError::Spent) => return Err(CompileError::OutOfBudget),
            Err(PatternError::TooLarge) => {}
            Ok(program) => self.patterns += program.bytes(),
        }
        if self.patterns > MAX_PATTERNS {
            let text = format!("patterns that need more than {MAX_PATTERNS} bytes");
            return Err(CompileError::Unsupported(text));
        }
        Ok(Some(Arc::new(program)))
    }

    fn operator(
        &mut self,
        name: &str,
        arguments: &[IdedExpr],
    ) -> Result<Option<Node>, CompileError> {
        let comparison = match name {
            operators::EQUALS => Some(Comparison::Equal),
            operators::NOT_EQUALS => Some(Comparison::NotEqual),
            operators::LESS => Some(Comparison::Less),
            operators::LESS_EQUALS => Some(Comparison::LessOrEqual),
            operators::GREATER => Some(Comparison::Greater),
            operators::GREATER_EQUALS => Some(Comparison::GreaterOrEqual),
            operators::IN => Some(Comparison::In),
            _ => None,
        };
        Ok(Some(match (name, arguments) {
            (_, [left, right]) if let Some(operator) = comparison => {
                Node::Compare { operator, left: self.boxed(left)?, right: self.boxed(right)? }
            }
            (operators::LOGICAL_AND, [left, right]) => {
                Node::And(self.boxed(left)?, self.boxed(right)?)
            }
            (operators::LOGICAL_OR, [left, right]) => {
                Node::Or(self.boxed(left)?, self.boxed(right)?)
            }
            (operators::LOGICAL_NOT, [operand]) => Node::Not(self.boxed(operand)?),
            (operators::NOT_STRICTLY_FALSE, [operand]) => {
                Node::NotStrictlyFalse(self.boxed(operand)?)
            }
            (operators::CONDITIONAL, [test, yes, no]) => {
                let branches = [self.node(test)?, self.node(yes)?, self.node(no)?];
                Node::Conditional(Box::new(branches))
            }
            (operators::INDEX | operators::OPT_INDEX, [of, key]) => {
                let (of, key) = (self.node(of)?, self.node(key)?);
                Self::index(of, key, name == operators::OPT_INDEX)?
            }
            (operators::OPT_SELECT, [of, field]) => {
                let of = self.node(of)?;
                let Node::Literal(Value::String(field)) = self.node(field)? else {
                    return Err(CompileError::Invalid("unsupported optional field".to_owned()));
                };
                Self::field(of, &field, true)?
            }
            _ => return Ok(None),
        }))
    }

    fn list(&mut self, list: &ListExpr) -> Compiled {
        let elements = list.elements.iter().enumerate();
        let elements =
            elements.map(|(i, tree)| Ok((self.node(tree)?, list.optional_indices.contains(&i))));
        elements.collect::<Result<_, _>>().map(Node::List)
    }

    fn map(&mut self, map: &MapExpr) -> Compiled {
        let entries = map.entries.iter().map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                Ok((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional))
            }
            EntryExpr::StructField(field) => Err(undeclared(&field.field)),
        });
        entries.collect::<Result<_, _>>().map(Node::Map)
    }

    /// Compiles with additional variables in scope.
    fn with<T>(&mut self, names: &[&str], compile: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.names.len();
        self.names.extend(names.iter().map(|name| (*name).to_owned()));
        let compiled = compile(self);
        self.names.truncate(outer);
        compiled
    }

    fn comprehension(&mut self, tree: &ComprehensionExpr) -> Compiled {
        let (range, init) = (self.node(&tree.iter_range)?, self.node(&tree.accu_init)?);
        let second = tree.iter_var2.as_deref();
        let mut names = vec![tree.accu_var.as_str(), tree.iter_var.as_str()];
        names.extend(second);
        let result = self.with(&names[..1], |scope| scope.node(&tree.result))?;
        let (condition, step) = self.with(&names, |scope| {
            Ok::<_, CompileError>((scope.node(&tree.loop_cond)?, scope.node(&tree.loop_step)?))
        })?;
        let two_variables = second.is_some();
        let loop_ = Comprehension { range, init, condition, step, result, two_variables };
        Ok(Node::Comprehension(Box::new(loop_)))
    }

    fn bind(&mut self, arguments: &[IdedExpr]) -> Compiled {
        let [name, value, body] = arguments else { return Err(undeclared("cel.bind")) };
        let name = variable(name)?;
        let value = self.boxed(value)?;
        let body = self.with(&[name], |scope| scope.boxed(body))?;
        Ok(Node::Bind { value, body })
    }

    /// Compiles `o.optMap(x, e)`, which wraps `e` into an optional, and `o.optFlatMap(x, e)`, where
    /// `e` is an optional itself.
    fn optional_macro(
        &mut self,
        target: &IdedExpr,
        wrap: bool,
        name: &IdedExpr,
        body: &IdedExpr,
    ) -> Compiled {
        let name = variable(name)?;
        let target = self.boxed(target)?;
        // One slot holds the optional itself, the next its value.
        self.with(&["@optional"], |scope| {
            let slot = scope.names.len() - 1;
            let has_value = method_call("hasValue", slot)?;
            let value = method_call("value", slot)?;
            let body = scope.with(&[name], |scope| scope.node(body))?;
            let body = if wrap {
                let of = functions::find("optional.of", false, 1);
                let function = of.ok_or_else(|| undeclared("optional.of"))?;
                Node::Call { function, arguments: vec![body] }
            } else {
                body
            };
            let some = Node::Bind { value: Box::new(value), body: Box::new(body) };
            let none = Node::Literal(Value::Optional(None));
            let branches = Box::new([has_value, some, none]);
            let body = Box::new(Node::Conditional(branches));
            Ok(Node::Bind { value: target, body })
        })
    }

    /// Compiles the comprehensions with two variables (`ext.TwoVarComprehensions` of cel-go).
    fn two_variable_macro(
        &mut self,
        target: &IdedExpr,
        name: &str,
        variables: [&IdedExpr; 2],
        rest: &[IdedExpr],
    ) -> Compiled {
        let range = self.node(target)?;
        let names = ["@result", variable(variables[0])?, variable(variables[1])?];
        let accumulator = self.names.len();
        let arguments = self.with(&names, |scope| {
            rest.iter().map(|tree| scope.node(tree)).collect::<Result<Vec<_>, _>>()
        })?;
        let shape =
            two_variable_loop(name, arguments, accumulator).ok_or_else(|| undeclared(name))?;
        Ok(Node::Comprehension(Box::new(Comprehension { range, two_variables: true, ..shape })))
    }
}

fn is_two_variable_macro(name: &str, rest: usize) -> bool {
    match name {
        "all" | "exists" | "existsOne" | "exists_one" => rest == 1,
        "transformList" | "transformMap" | "transformMapEntry" => rest == 1 || rest == 2,
        _ => false,
    }
}

/// A call without arguments on what a slot holds.
fn method_call(name: &str, slot: usize) -> Compiled {
    let function = functions::find(name, true, 1).ok_or_else(|| undeclared(name))?;
    Ok(Node::Call { function, arguments: vec![Node::Slot(slot)] })
}

fn undeclared(name: &str) -> CompileError {
    CompileError::Invalid(format!("undeclared reference to '{name}'"))
}

fn variable(tree: &IdedExpr) -> Result<&str, CompileError> {
    match &tree.expr {
        Expr::Ident(name) => Ok(name),
        _ => Err(CompileError::Invalid("argument must be a simple name".to_owned())),
    }
}

fn device_field(field: &str) -> Compiled {
    match field {
        "attributes" => Ok(Node::Literal(Value::AttributeDomains)),
        "capacity" => Ok(Node::Literal(Value::CapacityDomains)),
        "driver" => Ok(Node::Driver),
        "allowMultipleAllocations" => Ok(Node::AllowsMultipleAllocations),
        _ => Err(CompileError::Invalid(format!("undefined field '{field}'"))),
    }
}

fn literal(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(value.inner().into()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::string(value.inner()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}
