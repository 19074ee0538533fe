//! Finds selectors of the classes that claims request which select no device, or fail on some. The scheduler
//! evaluates them on every device that its search reaches, of whichever driver, and ends with an error
//! where one fails.

use super::finding::Findings;
use super::scene::Scene;
use crate::text::counted;
use cluster_model::machines::{NotSelected, is_in};
use cluster_model::view::ClusterView;
use cluster_model::{gpu_drivers, nic_drivers};
use dra_allocator::{Class, Device};
use std::collections::BTreeMap;

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let view = scene.view;
    let devices = scene.census.published.values().flatten();
    let devices: Vec<&Device> = devices.map(|(_, device)| *device).collect();
    let ours = nic_drivers::all().iter().filter(|it| it.is_ours());
    let of_nics = ours.map(|it| (it.driver, scene.policy.nic_class.as_str()));
    let of_gpus = gpu_drivers::all().iter().map(|it| (it.driver, it.class));
    for (driver, name) in of_nics.chain(of_gpus) {
        let own: Vec<&Device> = devices.iter().copied().filter(|it| is_meant(it, driver)).collect();
        let (Some(class), Some(first)) = (view.inventory().class(name), own.first()) else {
            continue;
        };
        if let Some(why) = selects_none(view, class, &own) {
            let message = format!(
                "selects none of {} of driver {driver}: on {} of {}, {why}; change its selectors",
                counted(own.len(), "device"),
                first.id().device,
                first.id().pool,
            );
            found.error(place(class), message);
        }
        failing(view, class, &devices, found);
    }
}

/// Whether the driver's class is about a device: parts of GPUs have a class of their own.
fn is_meant(device: &Device, driver: &str) -> bool {
    *device.id().driver == *driver
        && gpu_drivers::by_name(driver).is_none_or(|gpus| gpus.is_whole(device))
}

fn place(class: &Class) -> String {
    format!("DeviceClass {}", class.name)
}

/// Why a class does not select the first of these devices, if it selects no other either.
fn selects_none(view: &ClusterView, class: &Class, devices: &[&Device]) -> Option<NotSelected> {
    if devices.iter().any(|device| is_in(class, device, view.settings())) {
        return None;
    }
    NotSelected::by(class, devices.first()?, view.settings())
}

/// A finding for each selector of a class that fails on devices, with the drivers of these.
fn failing(view: &ClusterView, class: &Class, devices: &[&Device], found: &mut Findings) {
    let mut failures: BTreeMap<NotSelected, BTreeMap<&str, usize>> = BTreeMap::new();
    for device in devices {
        let why = NotSelected::by(class, device, view.settings());
        if let Some(why) = why.filter(|why| why.failure.is_some()) {
            *failures.entry(why).or_default().entry(&device.id().driver).or_default() += 1;
        }
    }
    for (why, drivers) in failures {
        let drivers: Vec<String> = drivers
            .into_iter()
            .map(|(driver, number)| format!("{} of {driver}", counted(number, "device")))
            .collect();
        let message = format!(
            "has a selector that fails on {}: {why}; the scheduler refuses a pod when its search reaches \
             such a device, so begin the selector with `device.driver == \"…\" &&`, and test for \
             attributes that some devices lack",
            drivers.join(" and "),
        );
        found.warning(place(class), message);
    }
}
