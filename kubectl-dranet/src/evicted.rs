//! Pods that are bound and evicted later, in the answer's form.

use crate::answer::Evicted;
use cluster_model::room::Eviction;

impl Evicted {
    pub(crate) fn new(node: &str, eviction: &Eviction) -> Self {
        let Eviction { seconds, taint, device } = eviction;
        Self {
            node: node.to_owned(),
            taint: taint.to_string(),
            device: device.as_ref().map(|id| id.device.to_string()),
            after_seconds: *seconds,
            text: format!("node {node}: {eviction}"),
        }
    }
}
