//! Volumes that pods ask for.

use super::volume_wish::VolumeWish;
use super::why_not::{VolumeProblem, WhyNot};
use crate::view::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

/// A volume that a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VolumeAsk {
    /// The name of its claim.
    pub(super) claim: Box<str>,
    /// What the claim asks for, if it is created for the pod.
    pub(super) made: Option<Box<VolumeWish>>,
}

impl VolumeAsk {
    /// The volumes of a pod that are bound to claims.
    pub(super) fn of(pod: &Pod) -> Vec<Self> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let asked = volumes.filter_map(|volume| {
            if let Some(source) = &volume.persistent_volume_claim {
                return Some(Self { claim: source.claim_name.as_str().into(), made: None });
            }
            let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            let claim = format!("{pod}-{}", volume.name).into();
            Some(Self { claim, made: Some(Box::new(VolumeWish::new(&template.spec))) })
        });
        asked.collect()
    }

    /// The key of its claim in a namespace.
    pub(super) fn key(&self, namespace: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.to_owned(), name: self.claim.to_string() }
    }

    /// Whether its claim has the name that a StatefulSet gives to a claim of this pod.
    pub(super) fn is_named_after(&self, pod: &str) -> bool {
        self.claim.strip_suffix(pod).is_some_and(|template| template.ends_with('-'))
    }

    /// Whether one of these volumes is of the same claim, and the claim is not created for its pod.
    pub(super) fn shares_claim(&self, others: &[Self]) -> bool {
        others.iter().any(|it| it.made.is_none() && it.claim == self.claim)
    }

    /// Why a node cannot have it.
    pub(super) fn why_not(&self, problem: VolumeProblem) -> WhyNot {
        WhyNot::Volume { claim: self.claim.clone(), problem }
    }

    /// Whether a claim was created for the pod (`VolumeIsForPod` in
    /// `k8s.io/component-helpers/storage/ephemeral`).
    pub(super) fn has_made(&self, claim: &PersistentVolumeClaim) -> bool {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        owners.any(|owner| {
            let rest = self.claim.strip_prefix(owner.name.as_str());
            owner.kind == "Pod" && rest.is_some_and(|rest| rest.starts_with('-'))
        })
    }
}
