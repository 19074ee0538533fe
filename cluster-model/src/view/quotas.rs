//! The resources that ResourceQuotas limit in each namespace.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::ResourceQuota;
use std::collections::{BTreeMap, BTreeSet};

/// The limited resources of each quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas(BTreeMap<ObjectKey, BTreeSet<String>>);

impl Quotas {
    /// The quotas of a namespace that limit a resource, given by its name in a quota.
    pub fn of<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let all = self.0.iter().filter(move |(key, _)| key.namespace == namespace);
        all.filter(move |(_, limited)| limited.contains(resource)).map(|(key, _)| key)
    }

    /// The quotas that limit one resource but not another, given by their names in a quota
    /// (`requests.nvidia.com/gpu`).
    pub fn limiting<'a>(
        &'a self,
        resource: &'a str,
        other: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let limiting = self.0.iter().filter(move |(_, all)| all.contains(resource));
        limiting.filter(move |(_, all)| !all.contains(other)).map(|(key, _)| key)
    }
}

impl Index<ResourceQuota> for ClusterView {
    fn apply(&mut self, object: ResourceQuota) -> Result<(), ViewError> {
        let hard = object.spec.and_then(|spec| spec.hard).unwrap_or_default();
        self.quotas.0.insert(ObjectKey::of(&object.metadata), hard.into_keys().collect());
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.quotas.0.remove(key);
    }
}
