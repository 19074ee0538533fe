//! What `-o json` of each command contains; of some commands it is the type that they print. The schemas in `docs/reference/schemas` are generated
//! from these types, and real output is read into them.

#![allow(dead_code, reason = "only serde reads the fields")]

#[path = "../../src/answer.rs"]
mod answer;
mod cluster;
mod files;
mod pods;

pub(crate) use answer::*;
pub(crate) use cluster::*;
pub(crate) use files::*;
pub(crate) use pods::*;

use serde_json::{Map, Value};

/// An object of Kubernetes.
type Object = Map<String, Value>;
