//! The selectors of Services: kube-scheduler spreads the pods that they select.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::Service;
use std::collections::BTreeMap;

/// The selector of each Service; empty if it selects no pod.
pub(super) type Services = BTreeMap<ObjectKey, BTreeMap<String, String>>;

impl Index<Service> for ClusterView {
    fn apply(&mut self, service: Service) -> Result<(), ViewError> {
        let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
        self.services.insert(ObjectKey::new(&service.metadata), selector);
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.services.remove(key);
    }
}

impl ClusterView {
    /// The labels that Services ask of pods, of those that select a pod of a namespace with these labels
    /// (`DefaultSelector` in `plugins/helper`); `None` if no Service is known.
    pub fn services_of<'l>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'l str>,
    ) -> Option<BTreeMap<String, String>> {
        let own = self.services.iter().filter(|(key, _)| key.namespace == namespace);
        let selecting = own.filter(|(_, selector)| {
            selector.iter().all(|(key, value)| label(key) == Some(value.as_str()))
        });
        let labels = selecting.flat_map(|(_, selector)| selector.clone());
        (!self.services.is_empty()).then(|| labels.collect())
    }
}
