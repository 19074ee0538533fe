//! NVIDIA's `ComputeDomain`s, reduced to those that admission has created.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::compute_domain::{ComputeDomain, is_name, name};
use crate::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::{BTreeMap, BTreeSet};

/// `ComputeDomain`s by namespace and group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeDomains {
    is_served: bool,
    made: BTreeMap<ObjectKey, MadeDomain>,
    /// Objects of others that have the names of those.
    taken: BTreeSet<ObjectKey>,
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

    /// How many of them a namespace has.
    pub fn count_in(&self, namespace: &str) -> usize {
        self.made.keys().filter(|key| key.namespace == namespace).count()
    }

    /// Returns true if an object has this name that admission has not created.
    pub fn is_taken(&self, key: &ObjectKey) -> bool {
        self.taken.contains(key)
    }
}

impl ClusterView {
    /// NVIDIA's `ComputeDomain`s.
    pub fn compute_domains(&self) -> &ComputeDomains {
        &self.compute_domains
    }
}

impl Index<ComputeDomain> for ClusterView {
    fn apply(&mut self, object: ComputeDomain) -> Result<(), ViewError> {
        let metadata = object.metadata;
        let key = ObjectKey::new(&metadata);
        let group = metadata.labels.as_ref().and_then(|labels| labels.get(label::FABRIC_GROUP));
        if group.map(|group| name(group)) != Some(key.name.clone()) {
            self.compute_domains.made.remove(&key);
            if is_name(&key.name) {
                self.compute_domains.taken.insert(key);
                self.revision.templates += 1;
            }
            return Ok(());
        }
        self.compute_domains.taken.remove(&key);
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
        let was_taken = self.compute_domains.taken.remove(key);
        if self.compute_domains.made.remove(key).is_some() || was_taken {
            self.revision.templates += 1;
        }
    }

    fn served(&mut self) {
        self.compute_domains.is_served = true;
    }
}
