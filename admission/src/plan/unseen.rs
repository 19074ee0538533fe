//! Selects drivers and classes by names, and by what classes say, while no device is published.

use super::Policy;
use super::selection::{Selected, class, excludes_rdma, one_part};
use crate::denial::Denial;
use crate::intent::Intent;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::machines::is_in;
use cluster_model::names::annotation;
use cluster_model::nic_drivers::{self, NicDriver};
use cluster_model::view::ClusterView;
use dra_allocator::{AttributeValue, Class, Device, DeviceId};
use std::sync::Arc;

/// The classes from the user, the operator or the cluster.
pub(super) fn select(
    intent: &Intent,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Selected, Denial> {
    let (driver, gpu_class) = match intent.gpus {
        0 => (gpu_drivers::NONE, None),
        _ => gpus(intent, view, policy).map(|(driver, class)| (driver, Some(class)))?,
    };
    let (nic_driver, nic_class) = nics(intent, view, policy)?;
    Ok(Selected { driver, gpu_class, nic_driver, nic_class })
}

fn gpus(
    intent: &Intent,
    view: &ClusterView,
    policy: &Policy,
) -> Result<(&'static GpuDriver, Arc<Class>), Denial> {
    if let Some(name) = &intent.gpu_class {
        let class = class(view, annotation::GPU_CLASS, name, name)?;
        let driver = driver_by_class(intent, view, &class).ok_or_else(|| no_class(intent))?;
        return Ok((one_part(intent, driver)?, class));
    }
    let driver = match &intent.resource {
        Some(resource) => one_part(intent, resource.driver)?,
        None => gpu_drivers::all()
            .iter()
            .find(|driver| view.inventory().class(default_class(driver, view, policy)).is_some())
            .ok_or_else(|| no_class(intent))?,
    };
    let of_limits = intent.resource.as_ref().and_then(|resource| resource.class.as_deref());
    let name = of_limits.unwrap_or_else(|| default_class(driver, view, policy));
    Ok((driver, class(view, annotation::ALIGNED_NICS, name, name)?))
}

fn no_class(intent: &Intent) -> Denial {
    intent.deny("no DeviceClass in this cluster is for a known GPU driver")
}

/// The class that pods get which name no other.
fn default_class<'v>(driver: &GpuDriver, view: &'v ClusterView, policy: &'v Policy) -> &'v str {
    let is_part = driver.part.is_some();
    let mut resources = driver.extended_resources.iter().filter(|_| !is_part);
    let operators = policy.gpu_class.as_deref().filter(|_| !is_part);
    operators
        .or_else(|| resources.find_map(|it| view.class_of_extended_resource(it)))
        .unwrap_or(driver.class)
}

/// The driver whose GPUs, or parts of GPUs, the class selects by what all of them have; otherwise that
/// of the limits, or the first with a class in this cluster.
fn driver_by_class(
    intent: &Intent,
    view: &ClusterView,
    class: &Class,
) -> Option<&'static GpuDriver> {
    let of_limits = intent.resource.as_ref().map(|resource| resource.driver);
    let all = gpu_drivers::all().iter().chain(gpu_drivers::parts());
    all.clone()
        .filter(|driver| of_limits.is_none_or(|named| named.driver == driver.driver))
        .find(|driver| is_in(class, &bare(driver), view.settings()))
        .or(of_limits)
        .or_else(|| all.clone().find(|driver| view.inventory().class(driver.class).is_some()))
}

/// A device with nothing but the kind that all devices of the driver have.
fn bare(driver: &GpuDriver) -> Device {
    let device = Device::bare(DeviceId::new(driver.driver, "", ""));
    match driver.kind_attribute {
        Some(name) => device.with_attribute(name, AttributeValue::String(driver.gpu_kind.into())),
        None => device,
    }
}

/// The driver and the class of the NICs.
fn nics(
    intent: &Intent,
    view: &ClusterView,
    policy: &Policy,
) -> Result<(&'static NicDriver, Arc<Class>), Denial> {
    let (key, name) = match &intent.nic_class {
        Some(name) => (annotation::NIC_CLASS, name),
        None => (annotation::ALIGNED_NICS, &policy.nic_class),
    };
    let class = class(view, key, name, name)?;
    let driver = nic_drivers::all().iter().find(|it| it.classes.contains(&name.as_str()));
    let driver = driver.unwrap_or(nic_drivers::OURS);
    let nic = Device::bare(DeviceId::new(driver.driver, "", ""));
    let means_others = excludes_rdma(&class, driver, &nic, view.settings());
    Ok((if means_others { nic_drivers::OURS_BY_CLASS } else { driver }, class))
}
