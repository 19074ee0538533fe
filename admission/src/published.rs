//! What drivers publish now.

use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::is_in;
use cluster_model::view::ClusterView;
use dra_allocator::Class;

/// Whether the driver publishes such a device now.
pub(crate) fn publishes(view: &ClusterView, driver: &GpuDriver) -> bool {
    let mut slices = view.inventory().slices().filter(|it| *it.pool.driver == *driver.driver);
    slices.any(|slice| slice.devices.iter().any(|device| driver.is_whole(device)))
}

/// Whether the class selects a currently published device of the driver.
pub(crate) fn selects(view: &ClusterView, class: &Class, driver: &str) -> bool {
    let mut slices = view.inventory().slices().filter(|slice| *slice.pool.driver == *driver);
    slices.any(|slice| slice.devices.iter().any(|device| is_in(class, device, view.settings())))
}
