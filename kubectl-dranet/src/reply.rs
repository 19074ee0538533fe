//! What a cluster is asked and answers, beside its objects.

use serde_json::Value;

/// What is asked of the API server about one pod.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster is asked"))]
pub(crate) enum PodVerb<'o> {
    Create(&'o Value),
    Get,
    /// Says whether it is there yet.
    Delete,
}

/// What became of a pod that was created as a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster answers"))]
pub(crate) enum Probe {
    /// It would have been created.
    Created,
    /// Refused, for this reason.
    Refused(String),
    /// Who asks may not create pods.
    NoRight,
}

/// Why nothing was read, where the rest may still be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "no cluster answers"))]
pub(crate) enum Missing {
    /// Who asks has no right to.
    Right,
    /// The API server does not know the kind.
    Kind,
}
