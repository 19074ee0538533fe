//! What preemption knows of pods besides their room: who waits for devices, and who may leave.

use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;

/// All pods that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Pods {}

impl Pods {
    /// Adds or replaces a pod.
    pub fn apply(&mut self, pod: &Pod) {
        let _ = pod;
    }

    /// Removes a pod.
    pub fn delete(&mut self, key: &ObjectKey) {
        let _ = key;
    }

    /// Returns a cheap copy for reading.
    #[must_use]
    pub fn to_read(&self) -> Self {
        self.clone()
    }
}
