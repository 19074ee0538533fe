//! The functions of expressions, and the loops of the two-variable macros.
//!
//! The list is that of the newest environment in `k8s.io/apiserver/pkg/cel/environment/base.go`. A
//! function from there that is not implemented is rejected as unsupported.

mod arithmetic;
mod convert;
mod kubernetes;
mod lists;
mod macros;
mod network;
mod strings;

use super::function::Function;

/// Finds the function for a name and number of arguments.
pub(crate) fn find(name: &str, is_method: bool, arguments: usize) -> Option<&'static Function> {
    let tables = [
        arithmetic::FUNCTIONS,
        convert::FUNCTIONS,
        kubernetes::FUNCTIONS,
        lists::FUNCTIONS,
        macros::FUNCTIONS,
        network::FUNCTIONS,
        strings::FUNCTIONS,
    ];
    tables.into_iter().flatten().find(|function| function.is_called(name, is_method, arguments))
}

/// Returns true if the name is a namespace of functions.
pub(crate) fn is_namespace(name: &str) -> bool {
    matches!(name, "sets" | "lists" | "optional" | "ip" | "format" | "strings")
}

/// Returns true if Kubernetes has a function with this name that this crate does not implement.
pub(crate) fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.contains(&name) || name.starts_with("format.")
}

/// Functions of the environment that are not implemented: times and durations, named formats,
/// sorting by a key, quoting.
const UNSUPPORTED: &[&str] = &[
    "duration",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getQuery",
    "getSeconds",
    "isURL",
    "sortBy",
    "strings.quote",
    "timestamp",
    "unwrapOpt",
    "optional.unwrap",
    "validate",
];
