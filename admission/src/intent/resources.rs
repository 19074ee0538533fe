//! Extended resources in container limits that stand for whole GPUs: those of known
//! device plugins, and those that belong to a DeviceClass of the cluster, by its
//! `spec.extendedResourceName` or by its own name (KEP-5004, `DRAExtendedResource`).

use super::annotations;
use crate::published::{publishes, selects};
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::names::annotation;
use cluster_model::pod_containers::main_first;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the extended resource that has the class's own name
/// (`ResourceDeviceClassPrefix` of `resource.k8s.io/v1`).
const BY_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// An extended resource of which one unit is one whole GPU, or one part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuResource {
    /// The GPUs' driver.
    pub driver: &'static GpuDriver,
    /// Its name in limits.
    pub name: String,
    /// The DeviceClass that it belongs to; `None` for a known resource of a device
    /// plugin.
    pub class: Option<String>,
    /// The profile of the part; `None` for whole GPUs.
    pub profile: Option<String>,
}

/// The extended resources that count as GPUs in a pod.
#[derive(Clone, Debug)]
pub struct GpuResources(Vec<GpuResource>);

impl Default for GpuResources {
    /// The resources of known device plugins.
    fn default() -> Self {
        Self(
            gpu_drivers::all()
                .iter()
                .flat_map(|driver| {
                    let names = driver.extended_resources.iter();
                    names.map(move |name| GpuResource {
                        driver,
                        name: (*name).to_owned(),
                        class: None,
                        profile: None,
                    })
                })
                .collect(),
        )
    }
}

impl GpuResources {
    /// The resources of known device plugins, and those in the pod that belong to a class
    /// of GPUs.
    pub fn new(pod: &Pod, view: &ClusterView) -> Self {
        let mut all = Self::default();
        for name in mentioned(pod) {
            if all.get(&name).is_none() {
                all.0.extend(part(&name, view).or_else(|| by_class(name, view)));
            }
        }
        all
    }

    /// The resource of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&GpuResource> {
        self.0.iter().find(|resource| resource.name == name)
    }

    /// Every name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|resource| resource.name.as_str())
    }
}

fn by_class(name: String, view: &ClusterView) -> Option<GpuResource> {
    let class = match name.strip_prefix(BY_CLASS) {
        Some(class) => class,
        None => view.class_of_extended_resource(&name)?,
    };
    let known = view.inventory().class(class)?;
    let driver = gpu_drivers::all()
        .iter()
        .find(|driver| driver.driver == class || selects(view, known, driver.driver))?;
    let class = Some(class.to_owned());
    Some(GpuResource { driver, name, class, profile: None })
}

/// The parts of GPUs that a resource of a device plugin stands for, if a driver publishes such parts or
/// has installed a class for them: GPUs are divided as pods ask, and nodes with them come and go.
fn part(name: &str, view: &ClusterView) -> Option<GpuResource> {
    let (driver, profile) = gpu_drivers::parts().iter().find_map(|driver| {
        let profile = name.strip_prefix(driver.part?.profile_resources?)?;
        // Resource names have no plus: `1g.10gb.me` is the profile `1g.10gb+me`.
        Some((driver, profile.replace(".me", "+me")))
    })?;
    let class = view.class_of_extended_resource(name).map(str::to_owned);
    let is_known = class.is_some() || view.inventory().class(driver.class).is_some();
    (is_known || publishes(view, driver)).then(|| GpuResource {
        driver,
        name: name.to_owned(),
        class,
        profile: Some(profile),
    })
}

/// The limited extended resources that stand for GPUs of a driver: those of its device plugin, and
/// those of the classes that select its GPUs.
pub(crate) fn of_driver(
    driver: &GpuDriver,
    view: &ClusterView,
    is_limited: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    let by_class = view.inventory().class_names().filter_map(|name| {
        // Whether a class selects the GPUs takes longer: it is evaluated on devices.
        let resource = view.extended_resource(name).filter(|resource| is_limited(resource))?;
        let class = view.inventory().class(name)?;
        selects(view, class, driver.driver).then(|| resource.to_owned())
    });
    driver.extended_resources.iter().map(|name| (*name).to_owned()).chain(by_class).collect()
}

/// Names of the pod's extended resources, in its limits now or before the rewrite.
/// Kubernetes' own resources have no domain.
fn mentioned(pod: &Pod) -> BTreeSet<String> {
    let all = pod.spec.iter().flat_map(main_first);
    let limits = all.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let now = limits.flat_map(BTreeMap::keys).cloned();
    let kept = annotations(pod).get(annotation::LIMITS);
    let kept: Map<String, Value> =
        kept.and_then(|kept| serde_json::from_str(kept).ok()).unwrap_or_default();
    let before = kept.values().filter_map(Value::as_object).flat_map(Map::keys);
    now.chain(before.cloned()).filter(|name| name.contains('/')).collect()
}
