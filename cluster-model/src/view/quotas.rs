//! What namespaces may use: the resources that their ResourceQuotas limit.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::ResourceQuota;
use std::collections::{BTreeMap, BTreeSet};

/// Limited resources by quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas(BTreeMap<ObjectKey, BTreeSet<String>>);

impl Quotas {
    /// Names of the quotas of a namespace that limit a resource, by the name
    /// that it has there (`requests.nvidia.com/gpu`).
    pub fn on<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let of_namespace = self.0.iter().filter(move |(key, _)| key.namespace == namespace);
        let limiting = of_namespace.filter(move |(_, resources)| resources.contains(resource));
        limiting.map(|(key, _)| key.name.as_str())
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
