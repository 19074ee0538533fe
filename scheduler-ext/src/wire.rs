//! The extender's wire format: `k8s.io/kube-scheduler/extender/v1/types.go`. The Go types have no
//! JSON tags, so keys are the capitalised Go field names, while the Kubernetes objects inside use
//! their own.
//!
//! Only the fields of the pod that name its claims are parsed, and node names only if it has
//! claims: every pod of the cluster is sent here, with all its containers.

use k8s_openapi::api::core::v1::{
    Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The scheduler's request: a pod and the nodes that passed its filters.
#[derive(Clone, Debug)]
pub struct ExtenderArgs<'b> {
    /// The pod being scheduled, with only the parts of spec and status that name claims.
    pub pod: Pod,
    /// The names of the nodes, unparsed.
    node_names: Option<&'b RawValue>,
}

/// A body is not a request of a scheduler that is configured to send node names.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It is not JSON, or has other types.
    #[error("the body is not a valid ExtenderArgs: {0}")]
    Syntax(#[from] serde_json::Error),
    /// There is no pod.
    #[error("ExtenderArgs has no `Pod`")]
    NoPod,
    /// Nodes are sent as objects. An answer would be wrong: the scheduler would continue with an
    /// empty list of nodes.
    #[error(
        "ExtenderArgs has `Nodes` and no `NodeNames`: set `nodeCacheCapable: true` for this \
         extender in the KubeSchedulerConfiguration"
    )]
    Nodes,
}

/// One node's score. The answer to prioritize is a bare array of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    /// Name of the node.
    pub host: &'a str,
    /// 0 to 10.
    pub score: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args<'b> {
    pod: Option<WirePod>,
    nodes: Option<IgnoredAny>,
    #[serde(borrow)]
    node_names: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct WirePod {
    metadata: Option<WireMetadata>,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Deserialize)]
struct WireMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    resource_claims: Option<Vec<PodResourceClaim>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
}

impl<'b> ExtenderArgs<'b> {
    /// Parses the body of a request. Unknown fields are ignored.
    ///
    /// # Errors
    /// Says what is wrong with the body, for the scheduler's log.
    pub fn parse(body: &'b [u8]) -> Result<Self, WireError> {
        let Args { pod, nodes, node_names } = serde_json::from_slice(body)?;
        let pod = pod.ok_or(WireError::NoPod)?;
        if node_names.is_none() && nodes.is_some() {
            return Err(WireError::Nodes);
        }
        Ok(Self { pod: pod.into(), node_names })
    }

    /// Parses the names of the nodes.
    ///
    /// # Errors
    /// Says what is wrong with them, for the scheduler's log.
    pub fn node_names(&self) -> Result<Vec<String>, WireError> {
        let names = self.node_names.map(|names| serde_json::from_str(names.get()));
        Ok(names.transpose()?.unwrap_or_default())
    }
}

impl From<WirePod> for Pod {
    fn from(WirePod { metadata, spec, status }: WirePod) -> Self {
        let metadata = metadata.map(|WireMetadata { name, namespace, uid }| ObjectMeta {
            name,
            namespace,
            uid,
            ..ObjectMeta::default()
        });
        let spec = spec
            .map(|WireSpec { resource_claims }| PodSpec { resource_claims, ..PodSpec::default() });
        let status = status.map(|WireStatus { resource_claim_statuses }| PodStatus {
            resource_claim_statuses,
            ..PodStatus::default()
        });
        Self { metadata: metadata.unwrap_or_default(), spec, status }
    }
}
