//! What `-o json` of each command contains: the types that the commands print. The schemas in
//! `docs/reference/schemas` are generated from them, and real output is read into them.

#![allow(dead_code, reason = "only serde reads the fields")]

#[path = "../../src/answer/bench.rs"]
mod bench;
#[path = "../../src/answer/cluster.rs"]
mod cluster;
#[path = "../../src/answer/objects.rs"]
mod objects;
#[path = "../../src/answer/pods.rs"]
mod pods;

pub(crate) use bench::*;
pub(crate) use cluster::*;
pub(crate) use objects::*;
pub(crate) use pods::*;

use serde_json::{Map, Value};

/// An object of Kubernetes.
type Object = Map<String, Value>;
