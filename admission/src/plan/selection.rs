//! Selects the GPU driver and the device classes of a plan.

use super::Policy;
use super::among::Among;
use crate::denial::Denial;
use crate::fleet::Classes;
use crate::intent::Intent;
use crate::trials::Trials;
use crate::wishes::{Cpus, Nvmes};
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::machines::{NicSelection, Selection, is_in};
use cluster_model::names::{self, annotation};
use cluster_model::nic_drivers::{self, NicDriver, Rdma};
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use dra_allocator::{AttributeValue, Class, Device, Settings};
use std::sync::Arc;

/// The drivers and the device classes of a plan.
#[derive(Clone)]
pub(crate) struct Selected {
    pub(crate) driver: &'static GpuDriver,
    /// The class of the GPUs, if the claim asks for any.
    pub(crate) gpu_class: Option<Arc<Class>>,
    pub(crate) nic_driver: &'static NicDriver,
    pub(crate) nic_class: Arc<Class>,
}

impl Selected {
    pub(crate) fn classes(&self) -> Classes {
        let gpu = self.gpu_class.as_ref().map(|class| class.name.to_string());
        Classes { gpu: gpu.unwrap_or_default(), nic: self.nic_class.name.to_string() }
    }
}

/// The classes from the user, the operator or the cluster.
pub(super) fn select(
    intent: &Intent,
    among: &Among<'_>,
    policy: &Policy,
) -> Result<Selected, Denial> {
    let (nic_driver, nic_class) = nics(intent, among, policy)?;
    let (driver, gpu_class) = gpus(intent, among, policy)?;
    Ok(Selected { driver, gpu_class: Some(gpu_class), nic_driver, nic_class })
}

/// The class of the NICs, and the driver of the NICs that it selects. If the operator's class selects
/// no NIC, it is a class of the only other NIC driver of the cluster.
pub(super) fn nics(
    intent: &Intent,
    among: &Among<'_>,
    policy: &Policy,
) -> Result<(&'static NicDriver, Arc<Class>), Denial> {
    let named = match &intent.nic_class {
        Some(name) => class(among.view, annotation::NIC_CLASS, name, name),
        None => class(among.view, annotation::ALIGNED_NICS, &intent.trigger, &policy.nic_class),
    };
    if let Ok(named) = &named
        && let Some(driver) = nic_driver_of(among, named)
    {
        return Ok((driver, named.clone()));
    }
    if let Some(name) = &intent.nic_class {
        let why = no_device(&*named?);
        return Err(Denial::new(annotation::NIC_CLASS, name, why));
    }
    match others(among).as_slice() {
        [(driver, class)] => Ok((driver, class.clone())),
        [] => Err(intent.deny(no_device(&*named?))),
        several => {
            let classes: Vec<_> = several.iter().map(|(_, class)| &*class.name).collect();
            Err(intent.deny(format!(
                "the cluster has NICs of several drivers, and the annotation {} does not say which \
                 class is meant ({})",
                annotation::NIC_CLASS,
                classes.join(", ")
            )))
        }
    }
}

/// The devices that a claim may draw from.
pub(super) fn devices<'s>(
    intent: &'s Intent,
    selected: &'s Selected,
    view: &'s ClusterView,
) -> Selection<'s> {
    Selection {
        gpu_driver: selected.driver,
        gpu_class: selected.gpu_class.as_deref(),
        gpu_profile: intent.gpu_profile(),
        nics: nic_devices(intent, (selected.nic_driver, &selected.nic_class)),
        cpu_class: intent.wishes.cpus.and_then(|_| Cpus::class(view)),
        nvme_class: intent.wishes.nvmes.and_then(|_| Nvmes::class(view)),
    }
}

/// The NICs that a claim may draw from.
pub(super) fn nic_devices<'s>(
    intent: &Intent,
    (nic_driver, nic_class): (&'static NicDriver, &'s Class),
) -> NicSelection<'s> {
    NicSelection {
        nic_driver,
        nic_class,
        nic_role: intent.nic_role,
        without_interface: intent.host_network,
        only_shared: intent.wishes.share.is_some(),
    }
}

fn no_device(class: &Class) -> String {
    format!(
        "DeviceClass `{}` selects no device of driver {} that is published now",
        class.name,
        nic_drivers::OURS.driver
    )
}

/// The first driver in the table of whose NICs the class selects one that is published now.
fn nic_driver_of(among: &Among<'_>, class: &Class) -> Option<&'static NicDriver> {
    let driver = nic_drivers::all().iter().find(|it| among.selects(class, it.driver))?;
    let selected = among.of_class(class, driver.driver);
    let mut nics = selected.filter(|it| !it.id().device.starts_with(names::LATE_PLACE)).peekable();
    let settings = among.view.settings();
    let means_others =
        nics.peek().is_some() && nics.all(|nic| excludes_rdma(class, driver, nic, settings));
    Some(if means_others { nic_drivers::OURS_BY_CLASS } else { driver })
}

/// Whether the class selects this NIC of our driver without RDMA, and would not select it with RDMA.
///
/// Plans take NICs with RDMA, and a class that excludes these means the others. What the class says
/// decides, and not what it selects now: else pods would get other NICs while the machines with RDMA
/// are away.
pub(super) fn excludes_rdma(
    class: &Class,
    driver: &NicDriver,
    nic: &Device,
    settings: &Settings,
) -> bool {
    let Rdma::True(name) = driver.rdma else { return false };
    let [without, with] = [false, true]
        .map(|rdma| is_in(class, &nic.with_attribute(name, AttributeValue::Bool(rdma)), settings));
    driver.is_ours() && without && !with
}

/// The other NIC drivers that publish RDMA NICs, each with the first of its classes that selects one.
fn others(among: &Among<'_>) -> Vec<(&'static NicDriver, Arc<Class>)> {
    let found = nic_drivers::all().iter().filter(|driver| !driver.is_ours()).filter_map(|driver| {
        let mut classes =
            driver.classes.iter().filter_map(|name| among.view.inventory().class(name));
        let class = classes.find(|class| among.selects(class, driver.driver))?;
        Some((driver, class.clone()))
    });
    found.collect()
}

fn gpus(
    intent: &Intent,
    among: &Among<'_>,
    policy: &Policy,
) -> Result<(&'static GpuDriver, Arc<Class>), Denial> {
    if let Some(name) = intent.gpu_class.as_ref() {
        let class = class(among.view, annotation::GPU_CLASS, name, name)?;
        let driver = driver_of(intent, among, &class);
        if driver.is_some_and(|driver| !selects_whole(among, &class, driver)) {
            if let Some(part) = part_of(among, &class) {
                return one_part(intent, part).map(|part| (part, class));
            }
            let why = "the class selects only parts of GPUs, and only whole GPUs can be aligned \
                       with NICs";
            return Err(Denial::new(annotation::GPU_CLASS, name, why)
                .allowed("a DeviceClass that selects whole GPUs"));
        }
        return driver.map(|driver| (driver, class.clone())).ok_or_else(|| {
            let wanted = intent.resource.as_ref();
            let wanted = wanted.map_or("known GPU drivers", |resource| resource.driver.driver);
            let why = format!("the class selects no device of {wanted} that is published now");
            Denial::new(annotation::GPU_CLASS, name, why)
        });
    }
    let driver = match &intent.resource {
        Some(resource) => one_part(intent, resource.driver)?,
        // The operator's class may say which of several drivers is meant.
        None => match driver_of_policy(intent, among, policy) {
            Some(driver) => driver,
            None => only_driver(intent, among)?,
        },
    };
    let of_limits = intent.resource.as_ref().and_then(|resource| resource.class.as_deref());
    let operators = policy.gpu_class.as_deref().filter(|_| driver.part.is_none());
    let named = of_limits.or(operators);
    let name = named.unwrap_or_else(|| default_class(intent, among, driver));
    let class = class(among.view, annotation::ALIGNED_NICS, &intent.trigger, name)?;
    Ok((driver, class))
}

/// The driver whose GPUs the operator's class selects, if there is such a class.
fn driver_of_policy(
    intent: &Intent,
    among: &Among<'_>,
    policy: &Policy,
) -> Option<&'static GpuDriver> {
    let class = among.view.inventory().class(policy.gpu_class.as_deref()?)?;
    driver_of(intent, among, class)
}

/// The GPU drivers that publish devices in this cluster, each with the class that pods get which
/// name no other: what a pod must ask for where there are several.
pub fn drivers(view: &ClusterView, policy: &Policy) -> Vec<(&'static GpuDriver, String)> {
    let anywhere = Placement::default();
    let trials = Trials::default();
    let among = Among::all(view, &anywhere, &trials);
    let published = among.drivers();
    let there = gpu_drivers::all().iter().filter(|driver| published.contains(driver.driver));
    let named = there.map(|driver| {
        let operators = policy.gpu_class.as_deref().filter(|name| {
            let class = view.inventory().class(name);
            class.is_some_and(|class| among.selects(class, driver.driver))
        });
        let own =
            operators.unwrap_or_else(|| standing_for(driver.extended_resources, &among, driver));
        (driver, own.to_owned())
    });
    named.collect()
}

/// The default GPU class. A class that stands for the extended resource is preferred,
/// because its quota then still counts.
fn default_class<'a>(intent: &Intent, among: &Among<'a>, driver: &'static GpuDriver) -> &'a str {
    match &intent.resource {
        Some(resource) => standing_for(&[resource.name.as_str()], among, driver),
        None => standing_for(driver.extended_resources, among, driver),
    }
}

/// The class that stands for one of these extended resources, or else the one named like the driver.
fn standing_for<'a>(resources: &[&str], among: &Among<'a>, driver: &'static GpuDriver) -> &'a str {
    let view = among.view;
    resources
        .iter()
        .find_map(|resource| {
            view.class_of_extended_resource(resource).filter(|name| {
                view.inventory()
                    .class(name)
                    .is_some_and(|class| among.selects(class, driver.driver))
            })
        })
        .unwrap_or(driver.class)
}

/// The driver whose GPUs the class selects, limited to the driver that the limits name.
fn driver_of(intent: &Intent, among: &Among<'_>, class: &Class) -> Option<&'static GpuDriver> {
    let named = intent.resource.as_ref().map(|resource| resource.driver);
    gpu_drivers::all()
        .iter()
        .filter(|driver| named.is_none_or(|named| named == *driver))
        .find(|driver| among.selects(class, driver.driver))
}

/// The only GPU driver in the cluster, or a denial if there is none or several.
fn only_driver(intent: &Intent, among: &Among<'_>) -> Result<&'static GpuDriver, Denial> {
    let published = among.drivers();
    let there: Vec<_> =
        gpu_drivers::all().iter().filter(|driver| published.contains(driver.driver)).collect();
    match there.as_slice() {
        [only] => Ok(only),
        [] => Err(intent.deny("no known GPU driver publishes devices in this cluster")),
        several => {
            let names: Vec<_> = several.iter().map(|driver| driver.driver).collect();
            Err(intent.deny(format!(
                "the cluster has GPUs of several drivers ({}), and neither a limit nor the \
                 annotation {} says which",
                names.join(", "),
                annotation::GPU_CLASS
            )))
        }
    }
}

/// Whether the class selects a currently published whole GPU of the driver.
fn selects_whole(among: &Among<'_>, class: &Class, driver: &GpuDriver) -> bool {
    let mut slices = among.slices(driver.driver);
    slices.any(|slice| {
        let mut devices = slice.devices.iter().filter(|device| driver.is_whole(*device));
        devices.any(|device| is_in(class, device, among.view.settings()))
    })
}

/// The parts of GPUs of which the class selects one that is published now.
fn part_of(among: &Among<'_>, class: &Class) -> Option<&'static GpuDriver> {
    gpu_drivers::parts().iter().find(|part| selects_whole(among, class, part))
}

/// Denies a pod with several parts of GPUs: parts of one GPU and of several are the same to a claim.
pub(super) fn one_part(
    intent: &Intent,
    driver: &'static GpuDriver,
) -> Result<&'static GpuDriver, Denial> {
    if driver.part.is_none() || intent.gpus == 1 {
        return Ok(driver);
    }
    Err(intent.deny(format!(
        "the pod asks for {} parts of GPUs; one part can be aligned with NICs, or whole GPUs",
        intent.gpus
    )))
}

pub(super) fn class(
    view: &ClusterView,
    annotation: &'static str,
    value: &str,
    name: &str,
) -> Result<Arc<Class>, Denial> {
    view.inventory().class(name).cloned().ok_or_else(|| {
        let mut there: Vec<_> = view.inventory().class_names().map(|name| &**name).collect();
        there.sort_unstable();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let is_gpu_driver = gpu_drivers::all().iter().any(|driver| driver.driver == name);
        let remedy =
            if is_gpu_driver { format!("; install the DRA driver {name}") } else { String::new() };
        let why = format!("there is no DeviceClass `{name}`; the cluster has {there}{remedy}");
        Denial::new(annotation, value, why)
    })
}
