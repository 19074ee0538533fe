//! Reads how many exclusive CPUs the container with the devices requests.

use super::{AlignmentPolicy, Share};
use crate::denial::Denial;
use cluster_model::names::annotation;
use dra_allocator::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Thousandths of a CPU.
const MILLI: i64 = 1_000;

/// The CPUs that the claim must include. The CPU driver requires a single container whose
/// requests and limits are the same whole number.
pub(super) fn read(
    value: &str,
    pod: &Pod,
    shares: &[Share],
    policy: AlignmentPolicy,
) -> Result<u32, Denial> {
    let deny = |why: String| Denial::new(annotation::ALIGNED_CPUS, value, why);
    if value != "true" {
        return Err(deny("invalid value".to_owned()).allowed("\"true\""));
    }
    if policy == AlignmentPolicy::Preferred {
        return Err(deny(format!(
            "aligned CPUs must be on the NUMA node of the NICs, so they cannot be combined with \
             {}: \"preferred\"",
            annotation::ALIGNMENT_POLICY
        )));
    }
    let [share] = shares else {
        return Err(deny(format!(
            "a claim for CPUs serves one container, and {} containers of the pod get devices",
            shares.len()
        )));
    };
    let spec = pod.spec.as_ref();
    let main = spec.into_iter().flat_map(|spec| &spec.containers);
    let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let own = main.chain(init).find(|container| container.name == share.container);
    own.and_then(whole_cpus).ok_or_else(|| {
        deny(format!(
            "container `{}` requests no whole CPUs; set its CPU limit and request to the \
             same whole number",
            share.container
        ))
    })
}

/// The CPU limit of a container, if it is a whole number equal to the request.
fn whole_cpus(container: &Container) -> Option<u32> {
    let resources = container.resources.as_ref()?;
    let limit = whole(resources.limits.as_ref()?.get("cpu")?)?;
    // The API server sets a missing request to the limit.
    let request = resources.requests.as_ref().and_then(|requests| requests.get("cpu"));
    let is_same = request.is_none_or(|request| whole(request) == Some(limit));
    is_same.then_some(limit)
}

fn whole(quantity: &Text) -> Option<u32> {
    let milli = quantity.0.parse::<Quantity>().ok()?.milli_value();
    let cpus = u32::try_from(milli / MILLI).ok()?;
    (cpus > 0 && milli % MILLI == 0).then_some(cpus)
}
