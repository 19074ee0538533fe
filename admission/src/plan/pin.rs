//! The pinned claims of a plan.

use k8s_openapi::api::resource::v1::ResourceClaimSpec;

/// One of the claims that can serve a pod.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The cells that it is pinned to; `None` means any devices, with near ones
    /// preferred.
    pub place: Option<String>,
    /// The label of the nodes that it is limited to, if any.
    pub node_label: Option<(&'static str, String)>,
    /// The claim.
    pub claim: ResourceClaimSpec,
    /// Name of its template.
    pub template: String,
    /// The most search steps that it takes on a node.
    pub steps: u64,
    /// Names of the requests for NICs.
    pub nic_requests: Vec<String>,
}
