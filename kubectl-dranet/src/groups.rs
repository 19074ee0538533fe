//! The pods of groups that files create.

use crate::subject::Subject;
use admission::admit::admit;
use admission::plan::Policy;
use cluster_model::names::label;
use cluster_model::view::{ClusterView, ObjectKey};
use serde_json::Value;
use std::collections::BTreeMap;

/// How many pods of each group are created. A group that is not whole waits.
#[derive(Debug, Default)]
pub(crate) struct CreatedPods(BTreeMap<ObjectKey, usize>);

impl CreatedPods {
    pub(crate) fn new(subjects: &[Subject], view: &ClusterView, policy: &Policy) -> Self {
        let mut created = Self::default();
        for subject in subjects.iter().filter(|subject| subject.asks_for_fabric()) {
            let jobs = subject.jobs.max(1);
            for job in 0..jobs {
                let Ok(verdict) = admit(&subject.pod(job * subject.count / jobs), view, policy)
                else {
                    break;
                };
                if let Some(key) = group_of(&verdict.pod) {
                    let count = usize::try_from(subject.count / jobs).unwrap_or(usize::MAX);
                    *created.0.entry(key).or_default() += count;
                }
            }
        }
        created
    }

    /// The pods of the group of a pod as admission left it.
    pub(crate) fn of(&self, pod: &Value) -> Option<usize> {
        self.0.get(&group_of(pod)?).copied()
    }
}

/// The group of a pod as admission left it.
pub(crate) fn group_of(pod: &Value) -> Option<ObjectKey> {
    let metadata = &pod["metadata"];
    let name = metadata["labels"][label::FABRIC_GROUP].as_str()?.to_owned();
    let namespace = metadata["namespace"].as_str().unwrap_or("default").to_owned();
    Some(ObjectKey { namespace, name })
}
