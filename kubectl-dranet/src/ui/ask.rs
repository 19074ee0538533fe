//! What a page says of a cluster: the pods that wait and why, and the room. The answers are those of
//! `explain` and `capacity`.

use super::model::PageRoom;
use crate::capacity;
use crate::explain::{self, Scene};
use crate::groups::CreatedPods;
use crate::in_use::InUse;
use crate::preemption::Preemptions;
use crate::source::ReadCluster;
use crate::subject::Subject;
use crate::waiting::{Waiting, waiting};
use admission::plan::Policy;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use fabric_controller::group_pods::GroupPods;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// A cluster, and what questions need besides.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) view: ClusterView,
    pub(crate) in_use: InUse,
    pub(crate) pods: Vec<Pod>,
    /// The same pods as they were read.
    objects: Vec<Value>,
    pub(super) groups: GroupPods,
    pub(super) quotas: Vec<Value>,
    preemptions: Preemptions,
    /// Kueue's Workloads.
    workloads: Vec<Value>,
    pub(super) policy: Policy,
    pub(super) namespace: String,
}

impl Known {
    pub(crate) fn new(mut seen: ReadCluster, policy: Policy) -> anyhow::Result<Self> {
        let in_use = seen.in_use()?;
        Ok(Self {
            in_use,
            pods: seen.pods(None)?,
            objects: seen.of_kind("Pod").cloned().collect(),
            groups: seen.group_pods()?,
            quotas: seen.quotas(),
            preemptions: Preemptions::new(&seen)?,
            workloads: seen.workloads(),
            policy,
            namespace: seen.namespace.unwrap_or_else(|| "default".to_owned()),
            view: seen.view,
        })
    }

    /// The pods that wait, by their owner.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        waiting(self.pods.iter())
    }

    /// How many more pods of the usual shapes fit.
    pub(crate) fn room(&self) -> anyhow::Result<Vec<PageRoom>> {
        let Self { view, in_use, policy, namespace, pods, .. } = self;
        let shapes = capacity::usual((view, in_use), policy, namespace, pods)?;
        let rooms = shapes.iter().filter(|shape| shape.denied.is_none()).map(|shape| PageRoom {
            shape: shape.name(),
            now: shape.fit_now,
            empty: shape.fit_empty,
        });
        Ok(rooms.collect())
    }

    /// What `explain` says of a pod.
    pub(crate) fn explain(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let pod = self.objects.iter().find(|pod| {
            let metadata = &pod["metadata"];
            metadata["name"] == name
                && metadata["namespace"].as_str().unwrap_or("default") == namespace
        });
        let pod = pod.with_context(|| format!("there is no pod {namespace}/{name} now"))?;
        let Self { view, policy, in_use, preemptions, quotas, workloads, groups, .. } = self;
        let subject = Subject::one(pod.clone(), format!("Pod {name}"));
        let scene = Scene { view, policy, in_use, preemptions, fabric: None, quotas, workloads };
        let answer = explain::of_subject(&subject, scene, (groups, &CreatedPods::default()))?;
        explain::person(&subject.origin, &answer)
    }
}
