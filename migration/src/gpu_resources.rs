//! Extended resources that are GPUs or parts of them.

use cluster_model::gpu_drivers;

/// Whether an extended resource is whole GPUs, which stay in the pod.
pub(crate) fn is_gpu(name: &str) -> bool {
    gpu_drivers::is_resource(name)
}

/// Whether an extended resource is parts or shares of GPUs.
pub(crate) fn is_part_of_gpu(name: &str) -> bool {
    let mut prefixes = gpu_drivers::all().iter().flat_map(|driver| driver.partial_resources);
    prefixes.any(|prefix| name.starts_with(prefix))
}

/// The driver whose parts of GPUs claims can request by this extended resource.
pub(crate) fn driver_of_part(name: &str) -> Option<&'static str> {
    let mut parts = gpu_drivers::parts().iter();
    parts
        .find(|it| {
            it.part
                .and_then(|part| part.profile_resources)
                .is_some_and(|prefix| name.starts_with(prefix))
        })
        .map(|driver| driver.driver)
}
