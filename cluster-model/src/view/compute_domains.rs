//! NVIDIA's `ComputeDomain`s, reduced to those that admission has created.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::compute_domain::{ComputeDomain, name};
use crate::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;

/// `ComputeDomain`s by namespace and group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeDomains {
    is_served: bool,
    made: BTreeMap<ObjectKey, MadeDomain>,
}

/// A `ComputeDomain` that admission has created.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeDomain {
    /// Its resource version when it was read.
    pub version: String,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
}

impl ComputeDomains {
    /// Returns true if the API server serves `ComputeDomain`s.
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// The one with this namespace and name.
    pub fn get(&self, key: &ObjectKey) -> Option<&MadeDomain> {
        self.made.get(key)
    }
}

impl ClusterView {
    /// NVIDIA's `ComputeDomain`s.
    pub fn compute_domains(&self) -> &ComputeDomains {
        &self.compute_domains
    }

    /// Sets whether the API server serves `ComputeDomain`s.
    pub fn set_compute_domains_served(&mut self, is_served: bool) {
        self.compute_domains.is_served = is_served;
    }
}

impl Index<ComputeDomain> for ClusterView {
    fn apply(&mut self, object: ComputeDomain) -> Result<(), ViewError> {
        let metadata = object.metadata;
        let key = ObjectKey::of(&metadata);
        let group = metadata.labels.as_ref().and_then(|labels| labels.get(label::FABRIC_GROUP));
        if group.map(|group| name(group)) != Some(key.name.clone()) {
            return Ok(());
        }
        let made = MadeDomain {
            version: metadata.resource_version.unwrap_or_default(),
            is_deleted: metadata.deletion_timestamp.is_some(),
            owners: metadata.owner_references.unwrap_or_default(),
        };
        self.compute_domains.made.insert(key, made);
        self.revision.templates += 1;
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        if self.compute_domains.made.remove(key).is_some() {
            self.revision.templates += 1;
        }
    }
}
