//! The `ComputeDomain` of a pod's job, from which its pods get an IMEX channel.
//!
//! Nothing is made here. The pod gets a claim whose template NVIDIA's DRA driver creates for the
//! `ComputeDomain`. The leader creates the `ComputeDomain` when a pod with such a claim exists.

use crate::claim::class_names;
use crate::denial::Denial;
use crate::group::{self, Fabric};
use crate::pod_check;
use crate::wishes::{ComputeDomain, Wishes};
use cluster_model::compute_domain::CHANNEL_CLASS;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};

/// The group whose `ComputeDomain` the pod joins, if it asks for one; or why it cannot.
pub(crate) fn check(
    pod: &Pod,
    wishes: &Wishes,
    view: &ClusterView,
) -> Result<Option<String>, Denial> {
    if wishes.compute_domain.is_none() {
        return Ok(None);
    }
    if !view.compute_domains().is_served() {
        return Err(ComputeDomain::deny(
            "the API server has no ComputeDomains of resource.nvidia.com/v1beta1; ask the operator \
             to install NVIDIA's DRA driver with compute domains, or remove the annotation"
                .to_owned(),
        ));
    }
    if let Some(claim) = own_channel(pod, view) {
        return Err(ComputeDomain::deny(format!(
            "claim `{claim}` of the pod asks for the channel of a ComputeDomain already, and a node \
             has one; remove the claim or the annotation"
        )));
    }
    let own = group::own_pod_group(pod, view).map_err(|unknown| {
        ComputeDomain::deny(format!(
            "{unknown} of the pod is not known yet; create the group first, and try again"
        ))
    })?;
    let of = wishes.fabric.as_ref().map_or(&Fabric::Same, |fabric| &fabric.group);
    let group = group::group(pod, of, own.and_then(|own| own.root)).ok_or_else(|| {
        ComputeDomain::deny(
            "the pod has no controller and no job label, so no other pod shares its ComputeDomain; \
             create it with a Job, or name a group in dranet.io/fabric"
                .to_owned(),
        )
    });
    group.map(Some)
}

/// The pod's own claim for a channel, if it has one.
fn own_channel<'p>(pod: &'p Pod, view: &ClusterView) -> Option<&'p str> {
    let claims = pod.spec.as_ref()?.resource_claims.as_deref()?;
    let found = claims.iter().find(|entry| asks_for_channel(pod, entry, view));
    found.map(|entry| entry.name.as_str())
}

fn asks_for_channel(pod: &Pod, entry: &PodResourceClaim, view: &ClusterView) -> bool {
    let spec = pod_check::spec(pod, entry, view);
    let devices = spec.and_then(|spec| spec.devices.as_ref());
    let mut requests = devices.into_iter().flat_map(|it| it.requests.iter().flatten());
    requests.any(|request| class_names(request).any(|class| class == CHANNEL_CLASS))
}
