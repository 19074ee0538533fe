//! Requests to a cluster and their answers, other than reading objects.

use serde_json::Value;

/// A request about one object.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster is asked"))]
pub(crate) enum Verb<'o> {
    Create(&'o Value),
    /// An `Eviction` of a pod.
    Evict(&'o Value),
    Get,
    /// Returns the object if it still exists.
    Delete,
}

/// The result of creating a pod as a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster answers"))]
pub(crate) enum Probe {
    /// It would have been created, like this.
    Created(Box<Value>),
    /// Refused, for this reason.
    Refused(String),
    /// The user may not create pods.
    NoRight,
}

/// What a pod answered through the API server's proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster answers"))]
pub(crate) enum Proxied {
    Text(String),
    /// No answer, for this reason.
    Failed(String),
    /// The user may not use the proxy.
    NoRight,
}

/// Why some objects were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The user has no right to read them.
    Right,
    /// The API server does not know the kind.
    Kind,
}
