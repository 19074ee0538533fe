//! What commands answer, once.
//!
//! The text and the JSON of a command are made from these types. The tests read these files too, to
//! generate the schemas in `docs/reference/schemas` and to read real output, so they use nothing of
//! the crate.

mod bench;
mod cluster;
mod objects;
mod pods;

pub(crate) use bench::*;
pub(crate) use cluster::*;
pub(crate) use objects::*;
pub(crate) use pods::*;

/// An object of Kubernetes.
#[cfg(test)]
type Object = serde_json::Map<String, serde_json::Value>;
