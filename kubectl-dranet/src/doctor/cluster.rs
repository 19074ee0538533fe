//! Finds what keeps annotated pods from their devices, before the first of them is denied. A pure
//! function of the cluster, like the decision on a pod.

use super::finding::Findings;
use super::scene::Scene;
use crate::kinds::CLUSTER_QUEUES;
use admission::quota::{self, Quotas};
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::names::{self, annotation};
use cluster_model::nic_drivers;
use cluster_model::plugin_machines::{has_whole_units, places};
use dra_allocator::PoolProblem;
use serde_json::Value;
use std::collections::BTreeSet;

/// Nodes whose slices contradict each other.
pub(super) fn without_devices(scene: &Scene<'_>, found: &mut Findings) {
    for (node, why) in &scene.census.without {
        found.error(format!("node {node}"), format!("has no devices that can be allocated: {why}"));
    }
}

/// Missing classes that admission requests.
pub(super) fn classes(scene: &Scene<'_>, found: &mut Findings) {
    let Scene { view, census, .. } = scene;
    let inventory = view.inventory();
    let nic_class = &scene.policy.nic_class;
    // Admission takes a class of the cluster's only other NIC driver then.
    let mut others =
        nic_drivers::all().iter().filter(|it| census.published.contains_key(it.driver));
    let has_other =
        others.any(|it| !it.is_ours() && it.classes.iter().any(|it| inventory.class(it).is_some()));
    if inventory.class(nic_class).is_none() && !has_other {
        found.error(
            format!("DeviceClass {nic_class}"),
            "does not exist, but every claim requests NICs by it; apply \
             deploy/manifests/device-class.yaml, or name another class by --nic-class",
        );
    }
    for driver in gpu_drivers::all().iter().filter(|it| census.published.contains_key(it.driver)) {
        let mut resources = driver.extended_resources.iter();
        let stands = resources.any(|it| view.class_of_extended_resource(it).is_some());
        if inventory.class(driver.class).is_none() && !stands {
            let message = format!(
                "does not exist, so pods must name the class of their GPUs by {}; install it with {}",
                annotation::GPU_CLASS,
                driver.driver
            );
            found.warning(format!("DeviceClass {}", driver.class), message);
        }
    }
}

/// Pools that the scheduler ignores.
pub(super) fn broken_pools(scene: &Scene<'_>, found: &mut Findings) {
    found.on_each(scene.census.broken.clone(), |(driver, problem)| {
        let remedy = match problem {
            PoolProblem::Missing { .. } => "if this lasts, check the driver's log",
            PoolProblem::Invalid(_) => "check what the driver publishes",
        };
        format!("has a pool of driver {driver} that the scheduler ignores ({problem}); {remedy}")
    });
}

/// The extended resources of GPUs.
fn resources() -> impl Iterator<Item = (&'static GpuDriver, &'static str)> {
    let all = gpu_drivers::all().iter();
    all.flat_map(|driver| driver.extended_resources.iter().map(move |it| (driver, *it)))
}

/// GPUs that no claim can get.
pub(super) fn plugins(scene: &Scene<'_>, found: &mut Findings) {
    let Scene { view, census, .. } = scene;
    for (driver, resource) in resources() {
        let served = census.with(driver.driver);
        // Where NICs are bound late, pods that take a part get near NICs too.
        let nodes = view
            .nodes_with_plugin(resource)
            .filter(|node| !served.contains(node) && places(view, node).next().is_none());
        let (whole, others): (BTreeSet<_>, BTreeSet<_>) =
            nodes.partition(|node| has_whole_units(view, node, driver, resource));
        let message = format!(
            "offers {resource} only by a device plugin, so only pods that take all GPUs of a node get \
             NICs near them; for other pods, install the DRA driver {}",
            driver.driver
        );
        found.on(&whole, message);
        let message = format!(
            "offers {resource} only by a device plugin, and no NodeTopology has a GPU for each unit of \
             it, so no pod gets NICs near these GPUs; install the DRA driver {}",
            driver.driver
        );
        found.on(&others, message);
    }
}

/// GPUs that a device plugin and a DRA driver offer, so that two pods can get one.
pub(super) fn offered_twice(scene: &Scene<'_>, found: &mut Findings) {
    for (driver, resource) in resources() {
        let served = scene.census.with(driver.driver);
        let twice = scene.view.nodes_with_plugin(resource).filter(|node| served.contains(node));
        let message = format!(
            "offers {resource} by a device plugin and the same GPUs by the DRA driver {}, so two pods \
             can get one GPU; run either there",
            driver.driver
        );
        found.on(&twice.collect(), message);
    }
}

/// Nodes with GPUs but without NICs.
pub(super) fn without_nics(scene: &Scene<'_>, found: &mut Findings) {
    let census = &scene.census;
    let drivers = census.nic_drivers();
    let broken = drivers.iter().flat_map(|driver| census.with_broken(driver)).collect();
    let published = &census.with_nics() | &broken;
    let program = match drivers.as_slice() {
        [names::DRIVER] => "node-driver",
        _ => "that driver",
    };
    let message = format!(
        "has GPUs but no NICs of driver {}, so no pod with aligned NICs can run there; check whether \
         {program} runs there, and its log",
        drivers.join(" or ")
    );
    found.on(&(&census.with_gpus() - &published), message);
}

/// Whether NICs are there, but no GPUs of a DRA driver.
pub(super) fn without_gpus(scene: &Scene<'_>, found: &mut Findings) {
    let Scene { view, census, .. } = scene;
    let has_plugins = resources().any(|(_, it)| view.nodes_with_plugin(it).next().is_some());
    let is_broken = gpu_drivers::all().iter().any(|it| !census.with_broken(it.driver).is_empty());
    if census.with_nics().is_empty() || !census.with_gpus().is_empty() || has_plugins || is_broken {
        return;
    }
    let mut classes = gpu_drivers::all().iter().map(|driver| driver.class);
    let remedy = match classes.find(|class| view.inventory().class(class).is_some()) {
        None => "install the DRA driver of your GPUs".to_owned(),
        Some(class) => format!(
            "DeviceClass {class} is installed, so check whether its driver runs where the GPUs are, \
             and its log: some drivers leave out GPUs that they do not support"
        ),
    };
    let message = format!(
        "has NICs, but no GPUs of a DRA driver, so every annotated pod is denied; {remedy}"
    );
    found.error("the cluster", message);
}

/// Nodes whose graph has GPUs that their DRA driver does not publish. If no node has GPUs of a DRA
/// driver, or a device plugin offers these, another finding says so.
pub(super) fn without_gpu_driver(scene: &Scene<'_>, found: &mut Findings) {
    let Scene { view, census, .. } = scene;
    if census.with_gpus().is_empty() {
        return;
    }
    for driver in gpu_drivers::all() {
        let mut known = &census.with(driver.driver) | &census.with_broken(driver.driver);
        let plugins = driver.extended_resources.iter();
        known.extend(plugins.flat_map(|resource| view.nodes_with_plugin(resource)));
        let mut lacking = &census.graphs - &known;
        lacking.retain(|node| {
            let gpus = view.topology(node).map(|graph| graph.gpus()).unwrap_or_default();
            gpus.iter().any(|gpu| gpu.vendor == driver.pci_vendor)
        });
        let message = format!(
            "has GPUs that driver {} does not publish, so no claim can get them; check whether that \
             DRA driver runs there, and its log",
            driver.driver
        );
        found.on(&lacking, message);
    }
}

/// Nodes with NICs but without a graph.
pub(super) fn without_graph(scene: &Scene<'_>, found: &mut Findings) {
    found.on(
        &(&scene.census.with_nics() - &scene.census.graphs),
        "has NICs but no NodeTopology, so only the attributes that the drivers publish can join GPUs \
         and NICs; check whether node-driver may write NodeTopologies",
    );
}

/// Quotas on container limits, which claims replace.
pub(super) fn quotas(scene: &Scene<'_>, found: &mut Findings) {
    for (driver, resource) in resources() {
        // In this case the class of the resource is used, and counted.
        if scene.view.class_of_extended_resource(resource).is_some() {
            continue;
        }
        let quotas = Quotas { view: scene.view, counted: scene.policy.counted(driver) };
        for key in quotas.escaped(resource, driver.driver) {
            let message = format!(
                "limits {}, which does not count the claims that replace the limits of pods; {}",
                quota::limited(resource),
                quotas.instead(resource, driver.driver)
            );
            found.warning(format!("ResourceQuota {}/{}", key.namespace, key.name), message);
        }
    }
}

/// `ClusterQueue`s of Kueue that limit GPUs of device plugins, and not the resource that counts claims.
pub(super) fn queues(scene: &Scene<'_>, found: &mut Findings) {
    for queue in scene.seen.of_kind(CLUSTER_QUEUES.name) {
        let groups = queue["spec"]["resourceGroups"].as_array().into_iter().flatten();
        let covered = groups.filter_map(|group| group["coveredResources"].as_array()).flatten();
        let covered: Vec<_> = covered.filter_map(Value::as_str).collect();
        for (driver, resource) in resources().filter(|(_, it)| covered.contains(it)) {
            let counted = scene.policy.counted(driver);
            if scene.census.with(driver.driver).is_empty()
                || counted.is_some_and(|counted| covered.contains(&counted))
            {
                continue;
            }
            let message = match counted {
                Some(counted) => format!(
                    "limits {resource} and not {counted}, which pods request for the GPUs of their \
                     claims, so Kueue admits none of them; limit {counted}"
                ),
                None => format!(
                    "limits {resource}, which counts no claims of single pods, of groups of pods and of \
                     Deployments, so they are denied, or run beyond it; have claims counted by an extended \
                     resource (`counted` of the chart), and limit that"
                ),
            };
            let name = queue["metadata"]["name"].as_str().unwrap_or_default();
            found.warning(format!("ClusterQueue {name}"), message);
        }
    }
}

/// `LimitRange`s that refuse pods whose limits a claim replaces.
pub(super) fn limit_ranges(scene: &Scene<'_>, found: &mut Findings) {
    for (_, resource) in resources() {
        for key in scene.view.limit_ranges().everywhere(resource) {
            let place = format!("LimitRange {}/{}", key.namespace, key.name);
            found.warning(place, quota::bounds(resource));
        }
    }
}
