//! Where the pods of a job are, and whether they may be there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{
    super::site::{condition, is_held, node},
    Ask,
    trouble::Racks,
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The places of the pods of a job.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// How many have nodes.
    pub(super) bound: usize,
    fabrics: BTreeSet<String>,
    /// By number of the pod, its NVLink domain. Pods on nodes whose labels have changed since are left
    /// out.
    domains: BTreeMap<usize, String>,
    /// Each pod, for people.
    pub(super) text: String,
}

impl Placed {
    /// The places of these pods, except those that have failed or are being deleted.
    pub(super) fn new<'p>(pods: impl Iterator<Item = &'p Pod>, racks: &Racks) -> Self {
        let mut placed = Self::default();
        for pod in pods.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let status = pod.status.clone().unwrap_or_default();
            if status.phase.as_deref() == Some("Failed") {
                continue;
            }
            let said = condition(pod).map(|(reason, _)| reason).unwrap_or_default();
            let scheduled = status.conditions.iter().flatten();
            let scheduled = scheduled.filter(|it| it.type_ == "PodScheduled");
            let why: String = scheduled.filter_map(|it| it.message.clone()).collect();
            let on = node(pod).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(
                placed.text,
                "{} on `{on}` held {} {said} {why}, ",
                pod.name_any(),
                is_held(pod)
            );
            let Some(rack) = node(pod).and_then(|node| racks.of(node)) else { continue };
            placed.bound += 1;
            placed.fabrics.insert(rack.fabric.clone());
            let index = pod.annotations().get(INDEX).and_then(|it| it.parse().ok());
            if let Some(index) = index
                && rack.is_settled(pod)
            {
                placed.domains.insert(index, rack.domain.clone());
            }
        }
        placed
    }

    /// Fails if the pods of a job that must be together are not.
    pub(super) fn check(&self, name: &str, ask: Ask) -> anyhow::Result<()> {
        let Self { fabrics, domains, text, .. } = self;
        anyhow::ensure!(fabrics.len() < 2, "{name} {ask:?} is split over {fabrics:?}: {text}");
        let size = match ask {
            Ask::Fabric | Ask::Preferred => return Ok(()),
            Ask::Domain | Ask::Channels => usize::MAX,
            Ask::Slices(size) => size,
        };
        let mut slices: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        for (index, domain) in domains {
            slices.entry(index / size).or_default().insert(domain);
        }
        let is_split = slices.values().any(|domains| domains.len() > 1);
        anyhow::ensure!(!is_split, "{name} {ask:?} is split over {slices:?}: {text}");
        Ok(())
    }
}
