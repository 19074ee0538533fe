//! The pods of groups that files create.

use crate::explain::quota;
use crate::subject::Subject;
use admission::admit::admit;
use admission::plan::Policy;
use cluster_model::names::label;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many pods of each group are created. A group that is not whole waits.
#[derive(Debug, Default)]
pub(crate) struct CreatedPods(BTreeMap<ObjectKey, usize>);

impl CreatedPods {
    /// `quotas` has the quotas of the cluster, which may let fewer pods be created.
    pub(crate) fn new(
        subjects: &[Subject],
        view: &ClusterView,
        policy: &Policy,
        quotas: &[Value],
    ) -> Self {
        let mut created = Self::default();
        let mut quotas = quotas.to_vec();
        for subject in subjects.iter().filter(|subject| subject.asks_for_fabric()) {
            let jobs = subject.jobs.max(1);
            for job in 0..jobs {
                let Ok(verdict) = admit(&subject.pod(job * subject.count / jobs), view, policy)
                else {
                    break;
                };
                let (Some(key), Ok(pod)) = (group_of(&verdict.pod), Pod::deserialize(&verdict.pod))
                else {
                    continue;
                };
                let count = usize::try_from(subject.count / jobs).unwrap_or(usize::MAX);
                let is_there = pod.metadata.uid.is_some();
                *created.0.entry(key).or_default() +=
                    if is_there { count } else { quota::create(&pod, count, &mut quotas, view) };
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
