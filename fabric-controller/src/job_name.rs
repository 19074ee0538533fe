//! What people call a group: the object that they created.

use super::size::{Owner, SAME};
use k8s_openapi::api::core::v1::Pod;

/// The kind and the name of what a group is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    kind: Box<str>,
    name: Box<str>,
}

impl JobName {
    /// The name of a named group, otherwise the object that defines its size or is the pod's
    /// controller.
    pub(super) fn new(pod: &Pod, asked: &str, owner: Option<&Owner>) -> Self {
        let (kind, name) = match owner {
            _ if asked != SAME => ("group", asked),
            Some(owner) => (&*owner.kind, &*owner.name),
            None => ("Pod", pod.metadata.name.as_deref().unwrap_or_default()),
        };
        Self { kind: kind.into(), name: name.into() }
    }

    /// What people call it, for example `Job default/big`.
    pub(super) fn in_namespace(&self, namespace: &str) -> String {
        let Self { kind, name } = self;
        format!("{kind} {namespace}/{name}")
    }
}
