//! The functions of expressions, and the loops of the two-variable macros.
//!
//! What exists is what `k8s.io/apiserver/pkg/cel/environment/base.go` puts into the newest
//! environment. A name from there that is not in the table is refused as unsupported.

mod arithmetic;
mod convert;
mod kubernetes;
mod lists;
mod macros;
mod network;
mod patterns;
mod strings;

use super::function::Function;

/// The function of a name for a number of arguments.
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

/// Whether functions have this name and a dot in front of theirs.
pub(crate) fn is_namespace(name: &str) -> bool {
    matches!(name, "sets" | "lists" | "optional" | "ip" | "format" | "strings")
}

/// Whether Kubernetes has a function of this name that this crate has not.
pub(crate) fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.contains(&name) || name.starts_with("format.")
}

/// Functions of the environment that are not built here: times and durations, named formats,
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
