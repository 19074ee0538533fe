//! Finds what keeps annotated pods from their devices, before the first of them is denied. A pure
//! function of the cluster, like the decision on a pod.

mod selectors;

use crate::answer::{DoctorFinding, Severity};
use crate::predicted::nodes;
use admission::quota;
use cluster_model::gpu_drivers;
use cluster_model::names;
use cluster_model::nic_drivers;
use cluster_model::plugin_machines::{has_whole_units, places};
use cluster_model::view::ClusterView;
use dra_allocator::{Device, PoolProblem};
use std::collections::{BTreeMap, BTreeSet};

/// The cluster's devices, and its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Number of nodes with GPUs of a DRA driver.
    pub(crate) with_gpus: usize,
    /// Number of nodes with NICs of a known driver.
    pub(crate) with_nics: usize,
    /// Number of nodes with a known graph.
    pub(crate) with_graph: usize,
    /// Not sorted.
    pub(crate) findings: Vec<DoctorFinding>,
    /// Those about GPUs with two owners.
    pub(crate) offered_twice: Vec<DoctorFinding>,
}

/// The nodes by their devices.
#[derive(Default)]
struct Census<'a> {
    /// Nodes by the driver that publishes their devices.
    drivers: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Nodes by driver and problem of their pools.
    broken: BTreeMap<(&'a str, PoolProblem), BTreeSet<&'a str>>,
    graphs: BTreeSet<&'a str>,
    devices: Vec<&'a Device>,
}

/// Examines the whole cluster. `nic_class` is the DeviceClass of NICs in admission's settings.
pub(crate) fn examine(view: &ClusterView, nic_class: &str) -> Report {
    let mut findings = Vec::new();
    let census = Census::new(view, &mut findings);
    classes(view, nic_class, &census, &mut findings);
    census.broken(&mut findings);
    plugins(view, &census, &mut findings);
    census.incomplete(view, &mut findings);
    quotas(view, &mut findings);
    limit_ranges(view, &mut findings);
    Report {
        nodes: nodes(view).count(),
        with_gpus: census.with_gpus().len(),
        with_nics: census.with_nics().len(),
        with_graph: census.graphs.len(),
        findings,
        offered_twice: offered_twice(view, &census),
    }
}

impl<'a> Census<'a> {
    fn new(view: &'a ClusterView, findings: &mut Vec<DoctorFinding>) -> Self {
        let mut census = Self::default();
        for node in nodes(view) {
            if view.topology(node).is_some() {
                census.graphs.insert(node);
            }
            let devices = match view.inventory().devices_on(node, view.settings()) {
                Ok(devices) => devices,
                Err(error) => {
                    let message = format!("has no devices that can be allocated: {error}");
                    findings.push(DoctorFinding::new(
                        Severity::Error,
                        format!("node {node}"),
                        message,
                    ));
                    continue;
                }
            };
            for device in devices {
                census.drivers.entry(&device.id().driver).or_default().insert(node);
                census.devices.push(device);
            }
            let broken = view.inventory().broken_pools_on(node, view.settings());
            for (pool, problem) in broken.unwrap_or_default() {
                census.broken.entry((&pool.driver, problem)).or_default().insert(node);
            }
        }
        census
    }

    /// Reports pools that the scheduler ignores.
    fn broken(&self, findings: &mut Vec<DoctorFinding>) {
        for ((driver, problem), nodes) in &self.broken {
            let remedy = match problem {
                PoolProblem::Missing { .. } => "if this lasts, check the driver's log",
                PoolProblem::Invalid(_) => "check what the driver publishes",
            };
            let message = format!(
                "a pool of driver {driver} that the scheduler ignores ({problem}); {remedy}"
            );
            findings.extend(DoctorFinding::on(nodes, ("has", "have"), &message));
        }
    }

    /// The nodes with a pool of a driver that the scheduler ignores.
    fn with_broken(&self, driver: &str) -> BTreeSet<&'a str> {
        let of_driver = self.broken.iter().filter(|((of, _), _)| *of == driver);
        of_driver.flat_map(|(_, nodes)| nodes).copied().collect()
    }

    /// The nodes with devices of a driver.
    fn with(&self, driver: &str) -> BTreeSet<&'a str> {
        self.drivers.get(driver).cloned().unwrap_or_default()
    }

    fn with_gpus(&self) -> BTreeSet<&'a str> {
        gpu_drivers::all().iter().flat_map(|driver| self.with(driver.driver)).collect()
    }

    fn with_nics(&self) -> BTreeSet<&'a str> {
        nic_drivers::all().iter().flat_map(|driver| self.with(driver.driver)).collect()
    }

    /// The known NIC drivers that have pools in this cluster; this project's if none does.
    fn nic_drivers(&self) -> Vec<&'static str> {
        let there = nic_drivers::all().iter().map(|driver| driver.driver);
        let there: Vec<_> = there
            .filter(|driver| {
                self.drivers.contains_key(driver) || !self.with_broken(driver).is_empty()
            })
            .collect();
        if there.is_empty() { vec![names::DRIVER] } else { there }
    }

    /// Reports nodes that lack GPUs, NICs or a graph but have the others.
    fn incomplete(&self, view: &ClusterView, findings: &mut Vec<DoctorFinding>) {
        let nics = self.with_nics();
        let drivers = self.nic_drivers();
        let broken = drivers.iter().flat_map(|driver| self.with_broken(driver)).collect();
        let published = &nics | &broken;
        let bare = self.with_gpus().difference(&published).copied().collect();
        let program = match drivers.as_slice() {
            [names::DRIVER] => "node-driver runs there, and its log",
            _ => "that driver runs there, and its log",
        };
        let message = format!(
            "GPUs but no NICs of driver {}, so no pod with aligned NICs can run there; check whether \
             {program}",
            drivers.join(" or ")
        );
        findings.extend(DoctorFinding::on(&bare, ("has", "have"), &message));
        let mut resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
        let has_plugins =
            resources.any(|resource| view.nodes_with_plugin(resource).next().is_some());
        let is_broken = gpu_drivers::all().iter().any(|it| !self.with_broken(it.driver).is_empty());
        if self.with_gpus().is_empty() && !nics.is_empty() && !has_plugins && !is_broken {
            let mut installed = gpu_drivers::all().iter().map(|driver| driver.class);
            let installed = installed.find(|class| view.inventory().class(class).is_some());
            let remedy = installed.map_or_else(
                || "install the DRA driver of your GPUs".to_owned(),
                |class| {
                    format!(
                        "DeviceClass {class} is installed, so check whether its driver runs where the \
                         GPUs are, and its log: some drivers leave out GPUs that they do not support"
                    )
                },
            );
            let message = format!(
                "has NICs, but no GPUs of a DRA driver, so every annotated pod is denied; {remedy}"
            );
            findings.push(DoctorFinding::new(Severity::Error, "the cluster", &message));
        }
        self.without_gpu_driver(view, findings);
        let unknown = nics.difference(&self.graphs).copied().collect();
        let message = "NICs but no NodeTopology, so only the attributes that the drivers publish can \
                       join GPUs and NICs; check whether node-driver may write NodeTopologies";
        findings.extend(DoctorFinding::on(&unknown, ("has", "have"), message));
    }

    /// Reports nodes whose graph has GPUs that their DRA driver does not publish. If no node has GPUs
    /// of a DRA driver, or a device plugin offers these, another finding says so.
    fn without_gpu_driver(&self, view: &ClusterView, findings: &mut Vec<DoctorFinding>) {
        if self.with_gpus().is_empty() {
            return;
        }
        for driver in gpu_drivers::all() {
            let published = &self.with(driver.driver) | &self.with_broken(driver.driver);
            let plugins = driver.extended_resources.iter();
            let offered: BTreeSet<_> =
                plugins.flat_map(|resource| view.nodes_with_plugin(resource)).collect();
            let known = &published | &offered;
            let lacking = self
                .graphs
                .difference(&known)
                .copied()
                .filter(|node| {
                    let gpus = view.topology(node).map(|graph| graph.gpus()).unwrap_or_default();
                    gpus.iter().any(|gpu| gpu.vendor == driver.pci_vendor)
                })
                .collect();
            let message = format!(
                "GPUs that driver {} does not publish, so no claim can get them; check whether that \
                 DRA driver runs there, and its log",
                driver.driver
            );
            findings.extend(DoctorFinding::on(&lacking, ("has", "have"), &message));
        }
    }
}

/// Reports missing classes that admission requests.
fn classes(
    view: &ClusterView,
    nic_class: &str,
    census: &Census<'_>,
    findings: &mut Vec<DoctorFinding>,
) {
    let is_there = |class: &str| view.inventory().class(class).is_some();
    let place = |class: &str| format!("DeviceClass {class}");
    // Admission takes a class of the cluster's only other NIC driver then.
    let mut others = nic_drivers::all().iter().filter(|it| census.drivers.contains_key(it.driver));
    let has_other = others.any(|it| !it.is_ours() && it.classes.iter().any(|it| is_there(it)));
    if !is_there(nic_class) && !has_other {
        let message = "does not exist, but every claim requests NICs by it; apply \
                       deploy/manifests/device-class.yaml, or name another class by --nic-class";
        findings.push(DoctorFinding::new(Severity::Error, place(nic_class), message.to_owned()));
    }
    for driver in gpu_drivers::all().iter().filter(|it| census.drivers.contains_key(it.driver)) {
        let mut resources = driver.extended_resources.iter();
        let stands = resources.any(|it| view.class_of_extended_resource(it).is_some());
        if !is_there(driver.class) && !stands {
            let message = format!(
                "does not exist, so pods must name the class of their GPUs by {}; install it with \
                 {}",
                names::annotation::GPU_CLASS,
                driver.driver
            );
            findings.push(DoctorFinding::new(Severity::Warning, place(driver.class), message));
        }
    }
    selectors::examine(view, nic_class, &census.devices, findings);
}

/// GPUs that a device plugin and a DRA driver offer, so that two pods can get one.
fn offered_twice(view: &ClusterView, census: &Census<'_>) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for driver in gpu_drivers::all() {
        let served = census.with(driver.driver);
        for resource in driver.extended_resources {
            let twice = view.nodes_with_plugin(resource).filter(|node| served.contains(node));
            let message = format!(
                "{resource} by a device plugin and the same GPUs by the DRA driver {}, so two pods \
                 can get one GPU; run either there",
                driver.driver
            );
            findings.extend(DoctorFinding::on(&twice.collect(), ("offers", "offer"), &message));
        }
    }
    findings
}

/// Reports GPUs that no claim can get.
fn plugins(view: &ClusterView, census: &Census<'_>, findings: &mut Vec<DoctorFinding>) {
    for driver in gpu_drivers::all() {
        let served = census.with(driver.driver);
        for resource in driver.extended_resources {
            // Where NICs are bound late, pods that take a part get near NICs too.
            let nodes = view
                .nodes_with_plugin(resource)
                .filter(|node| !served.contains(node) && places(view, node).next().is_none());
            let (whole, others): (BTreeSet<_>, BTreeSet<_>) =
                nodes.partition(|node| has_whole_units(view, node, driver, resource));
            let message = format!(
                "{resource} only by a device plugin, so only pods that take all GPUs of a node get \
                 NICs near them; for other pods, install the DRA driver {}",
                driver.driver
            );
            findings.extend(DoctorFinding::on(&whole, ("offers", "offer"), &message));
            let message = format!(
                "{resource} only by a device plugin, and no NodeTopology has a GPU for each unit of \
                 it, so no pod gets NICs near these GPUs; install the DRA driver {}",
                driver.driver
            );
            findings.extend(DoctorFinding::on(&others, ("offers", "offer"), &message));
        }
    }
}

/// Reports quotas on container limits, which claims replace.
fn quotas(view: &ClusterView, findings: &mut Vec<DoctorFinding>) {
    let resources = gpu_drivers::all().iter().flat_map(|driver| {
        driver.extended_resources.iter().map(move |resource| (driver, resource))
    });
    for (driver, resource) in resources {
        // In this case the class of the resource is used, and counted.
        if view.class_of_extended_resource(resource).is_some() {
            continue;
        }
        for key in quota::escaped(view, resource, driver.driver) {
            let message = format!(
                "limits {}, which does not count the claims that replace the limits of pods; {}",
                quota::limited(resource),
                quota::instead(resource, driver.driver)
            );
            let place = format!("ResourceQuota {}/{}", key.namespace, key.name);
            findings.push(DoctorFinding::new(Severity::Warning, place, message));
        }
    }
}

/// Reports `LimitRange`s that refuse pods whose limits a claim replaces.
fn limit_ranges(view: &ClusterView, findings: &mut Vec<DoctorFinding>) {
    for resource in gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources) {
        for key in view.limit_ranges().everywhere(resource) {
            let place = format!("LimitRange {}/{}", key.namespace, key.name);
            let message = quota::bounds(resource);
            findings.push(DoctorFinding::new(Severity::Warning, place, message));
        }
    }
}
