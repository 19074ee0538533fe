//! The Node that owns everything that is published about a machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;

/// A Node, as it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Its name.
    pub name: String,
    /// Its UID; a node that was deleted and joined again has another one.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeIdentity {
    /// An owner reference to the Node, so that an object is deleted with it.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}
