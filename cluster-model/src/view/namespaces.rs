//! The labels of namespaces, by which pod affinity can select pods.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::Namespace;
use std::collections::BTreeMap;

impl Index<Namespace> for ClusterView {
    fn apply(&mut self, namespace: Namespace) -> Result<(), ViewError> {
        let name = namespace.metadata.name.unwrap_or_default();
        self.revision.placement += 1;
        self.namespaces.insert(name, namespace.metadata.labels.unwrap_or_default());
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.placement += 1;
        self.namespaces.remove(&key.name);
    }
}

impl ClusterView {
    /// The labels of a namespace, none if it does not exist; `None` if no namespace is known.
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        (!self.namespaces.is_empty()).then(|| self.namespaces.get(name).unwrap_or(&NONE))
    }
}
