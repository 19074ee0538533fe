//! The Kubernetes objects around the specifications.

use super::{NicAddressSpec, NicPoolSpec, NicPoolStatus};
use k8s_openapi::ClusterResourceScope;
#[cfg(feature = "crd")]
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

/// Addresses for the NICs of pods.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crd", schemars(extend("x-kubernetes-validations" = [
    {"rule": "size(self.metadata.name) <= 63", "message": "the name of a NicPool has at most 63 characters"}
])))]
pub struct NicPool {
    /// Claims refer to the pool by its name.
    #[cfg_attr(feature = "crd", schemars(skip))]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The addresses, and the routes and interface settings that go with them.
    pub spec: NicPoolSpec,
    /// The usage of the pool.
    #[serde(default)]
    pub status: Option<NicPoolStatus>,
}

/// An address from a `NicPool`, held by a claim.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct NicAddress {
    /// The name consists of the pool's name and the address.
    #[cfg_attr(feature = "crd", schemars(skip))]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The address and its claim.
    pub spec: NicAddressSpec,
}

topology_graph::resource!(NicPool, "topology.dranet.io", "v1alpha1", "nicpools", ClusterResourceScope, written status);
topology_graph::resource!(
    NicAddress,
    "topology.dranet.io",
    "v1alpha1",
    "nicaddresses",
    ClusterResourceScope,
    written
);

impl NicPool {
    /// The definition of the resource.
    #[cfg(feature = "crd")]
    pub fn crd() -> CustomResourceDefinition {
        topology_graph::definition::<Self>(&[
            ("Size", "integer", ".status.size", 0),
            ("Used", "integer", ".status.used", 0),
            ("Free", "integer", ".status.free", 0),
            ("Type", "string", ".spec.interface.type", 0),
            ("Ranges", "string", ".spec.ranges[*].cidr", 1),
        ])
    }
}

impl NicPool {
    /// When its spec was written last, to the second, as far as the API server records it.
    pub fn written(&self) -> Option<Timestamp> {
        let writes = self.metadata.managed_fields.iter().flatten();
        let of_spec = writes.filter(|it| it.subresource.as_deref().unwrap_or_default().is_empty());
        of_spec.filter_map(|it| it.time.as_ref()).map(|time| time.0).max()
    }
}

impl NicAddress {
    /// Returns true if its name consists of its pool and address.
    pub fn is_well_named(&self) -> bool {
        self.metadata.name.as_deref() == Some(&*self.spec.name())
    }

    /// When it was created, to the second.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }
}

#[cfg(feature = "crd")]
impl NicAddress {
    /// The definition of the resource.
    pub fn crd() -> CustomResourceDefinition {
        topology_graph::definition::<Self>(&[
            ("Address", "string", ".spec.address", 0),
            ("Pool", "string", ".spec.pool", 0),
            ("Namespace", "string", ".spec.claim.namespace", 0),
            ("Claim", "string", ".spec.claim.name", 0),
            ("Node", "string", ".spec.node", 0),
        ])
    }
}
