//! What `-o json` of each command contains. The schemas in `docs/reference/schemas` are generated
//! from these types, and real output is read into them.

#![allow(dead_code, reason = "only serde reads the fields")]

mod cluster;
mod files;
mod pods;

pub(crate) use cluster::*;
pub(crate) use files::*;
pub(crate) use pods::*;

use serde_json::{Map, Value};

/// An object of Kubernetes.
type Object = Map<String, Value>;
