//! The extender's wire: `k8s.io/kube-scheduler/extender/v1/types.go`. The Go
//! types carry no JSON tags, so keys are the Go field names, capitalised, while
//! the Kubernetes objects inside use their own.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// The largest score (`MaxExtenderPriority`); kube-scheduler does not clamp.
pub const SCORE_MAX: i64 = 10;

/// What the scheduler asks: a pod and the nodes that passed its filters.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderArgs {
    /// The pod being scheduled.
    pub pod: Pod,
    /// Names of the nodes; only with `nodeCacheCapable: true`.
    #[serde(default)]
    pub node_names: Option<Vec<String>>,
}

/// One node's score. The answer to prioritize is a bare array of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    /// Name of the node.
    pub host: String,
    /// 0 to [`SCORE_MAX`].
    pub score: i64,
}
