//! Functions of compiled expressions.

use super::error::RuntimeError;
use super::value::Value;
use crate::device::Device;

pub(crate) type Evaluated = Result<Value, RuntimeError>;

/// A function. For a method, the receiver is the first argument.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    method: bool,
    /// The minimum and maximum number of arguments.
    arguments: (usize, usize),
    pub(crate) call: fn(&[Value], &Device) -> Evaluated,
}

pub(super) const fn global(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[Value], &Device) -> Evaluated,
) -> Function {
    Function { name, method: false, arguments, call }
}

pub(super) const fn method(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[Value], &Device) -> Evaluated,
) -> Function {
    Function { name, method: true, arguments, call }
}

impl Function {
    /// Returns true if a call with this name and number of arguments calls this function.
    pub(super) fn is_called(&self, name: &str, is_method: bool, arguments: usize) -> bool {
        self.name == name
            && self.method == is_method
            && (self.arguments.0..=self.arguments.1).contains(&arguments)
    }
}

pub(crate) fn no_such_overload() -> RuntimeError {
    RuntimeError::no_such_overload()
}
