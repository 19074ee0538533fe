//! Volumes of pods: the claims, the volumes, and the classes that make them. Only programs that place
//! pods of people know any.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The volumes of all namespaces.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    made: BTreeMap<String, Arc<PersistentVolume>>,
    classes: BTreeMap<String, Arc<StorageClass>>,
}

impl Volumes {
    /// Whether anything is known of volumes.
    pub fn are_known(&self) -> bool {
        !(self.claims.is_empty() && self.made.is_empty() && self.classes.is_empty())
    }

    /// The claim with this key.
    pub fn claim(&self, key: &ObjectKey) -> Option<&PersistentVolumeClaim> {
        self.claims.get(key).map(|claim| &**claim)
    }

    /// The volume with this name.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.made.get(name).map(|volume| &**volume)
    }

    /// All volumes.
    pub fn all(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.made.values().map(|volume| &**volume)
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name).map(|class| &**class)
    }
}

impl Index<PersistentVolumeClaim> for ClusterView {
    fn apply(&mut self, claim: PersistentVolumeClaim) -> Result<(), ViewError> {
        self.volumes.claims.insert(ObjectKey::new(&claim.metadata), Arc::new(claim));
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.volumes.claims.remove(key);
    }
}

impl Index<PersistentVolume> for ClusterView {
    fn apply(&mut self, volume: PersistentVolume) -> Result<(), ViewError> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        self.volumes.made.insert(name, Arc::new(volume));
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.volumes.made.remove(&key.name);
    }
}

impl Index<StorageClass> for ClusterView {
    fn apply(&mut self, class: StorageClass) -> Result<(), ViewError> {
        let name = class.metadata.name.clone().unwrap_or_default();
        self.volumes.classes.insert(name, Arc::new(class));
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.volumes.classes.remove(&key.name);
    }
}
