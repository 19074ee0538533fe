//! Whether the table of drivers describes the cluster: the entries of the drivers file, and drivers
//! that it lacks.

use super::census::DeviceOnNode;
use super::finding::Findings;
use super::scene::Scene;
use crate::answer::{DoctorFinding, Severity};
use crate::text::counted;
use cluster_model::drivers::named_by_file;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::machines::is_in;
use cluster_model::nic_drivers::{self, NicDriver};
use cluster_model::node_devices::{address_on, text};
use cluster_model::published_device::{NicName, PublishedDevice as _};
use cluster_model::view::ClusterView;
use std::collections::BTreeSet;
use topology_graph::PciAddress;

/// What the devices of an unknown driver are in the graphs of their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Looks {
    /// Accelerators with this PCI vendor ID.
    Accelerator(u16),
    Nic,
    /// The graph has no such device.
    Unknown,
}

impl Looks {
    fn new(view: &ClusterView, (node, device): DeviceOnNode<'_>) -> Option<Self> {
        let address = device.address()?;
        let graph = view.topology(node)?;
        if let Some(gpu) = graph.gpu(address) {
            return Some(Self::Accelerator(gpu.vendor));
        }
        if graph.nic(address).is_some() {
            return Some(Self::Nic);
        }
        let is_nvme = graph.nvmes().iter().any(|nvme| nvme.address == address);
        (!is_nvme).then_some(Self::Unknown)
    }
}

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let Scene { view, census, .. } = scene;
    for name in named_by_file() {
        let of_gpus = gpu_drivers::by_name(name);
        found.0.extend(of_gpus.and_then(|driver| accelerators(view, driver, census.of(name))));
        let of_nics = nic_drivers::by_name(name);
        found.0.extend(of_nics.and_then(|driver| nics(view, driver, census.of(name))));
    }
    let built_in = nic_drivers::all().iter().filter(|it| !named_by_file().contains(&it.driver));
    for driver in built_in {
        found.0.extend(unknown_names(view, driver, census.of(driver.driver)));
    }
    for (driver, published) in census.published.iter().filter(|(driver, _)| !is_known(driver)) {
        found.0.extend(unknown(view, driver, published));
    }
}

/// Whether the table has a driver of this name.
fn is_known(driver: &str) -> bool {
    gpu_drivers::by_name(driver).is_some() || nic_drivers::by_name(driver).is_some()
}

fn warning(driver: &str, message: String) -> DoctorFinding {
    let place = format!("drivers file: driver {driver}");
    DoctorFinding { severity: Severity::Warning, place, message }
}

/// What an entry for accelerators says that the cluster does not.
fn accelerators(
    view: &ClusterView,
    driver: &GpuDriver,
    published: &[DeviceOnNode<'_>],
) -> Option<DoctorFinding> {
    let mut resources = driver.extended_resources.iter();
    if published.is_empty() {
        let has_plugin = resources.any(|name| view.nodes_with_plugin(name).next().is_some());
        return (!has_plugin).then(|| nothing(driver.driver));
    }
    let whole: Vec<_> = published.iter().filter(|(_, it)| driver.is_whole(*it)).collect();
    if let (true, Some(name)) = (whole.is_empty(), driver.kind_attribute) {
        let message = format!(
            "none of its {} devices has {name} = {}, so none is a whole accelerator; correct \
             `whole`{}",
            published.len(),
            driver.gpu_kind,
            values(name, published)
        );
        return Some(warning(driver.driver, message));
    }
    let has_class = view.inventory().class(driver.class).is_some()
        || resources.any(|name| view.class_of_extended_resource(name).is_some());
    if !has_class {
        return Some(no_class(driver.driver, &[driver.class], view, published));
    }
    let has_address = whole.iter().any(|(node, it)| address_on(view, node, it).is_some());
    (!has_address).then(|| no_address(driver.driver, published))
}

/// The same for NICs.
fn nics(
    view: &ClusterView,
    driver: &NicDriver,
    published: &[DeviceOnNode<'_>],
) -> Option<DoctorFinding> {
    if published.is_empty() {
        return Some(nothing(driver.driver));
    }
    if !driver.classes.iter().any(|class| view.inventory().class(class).is_some()) {
        return Some(no_class(driver.driver, driver.classes, view, published));
    }
    if !published.iter().any(|(_, nic)| driver.is_rdma(*nic)) {
        let message = format!(
            "none of its {} devices can do RDMA by `rdma`, so no pod gets one; correct `rdma`",
            published.len()
        );
        return Some(warning(driver.driver, message));
    }
    if let Some(finding) = unknown_names(view, driver, published) {
        return Some(finding);
    }
    let has_address = published.iter().any(|(node, it)| address_on(view, node, it).is_some());
    (!has_address).then(|| no_address(driver.driver, published))
}

/// NICs that a driver publishes by names that the graphs of their nodes do not know.
fn unknown_names(
    view: &ClusterView,
    driver: &NicDriver,
    published: &[DeviceOnNode<'_>],
) -> Option<DoctorFinding> {
    let unknown: Vec<(DeviceOnNode<'_>, NicName<'_>)> = published
        .iter()
        .filter(|(node, it)| view.topology(node).is_some() && address_on(view, node, it).is_none())
        .filter_map(|(node, it)| Some(((*node, *it), it.graph_name()?)))
        .collect();
    let ((node, device), name) = *unknown.first()?;
    let what = match name {
        NicName::RdmaDevice(name) => format!("RDMA device `{name}`"),
        NicName::Interface(name) => format!("interface `{name}`"),
    };
    let message = format!(
        "publishes NICs by names that graphs do not know, so their place is unknown: {} of {}, such as \
         device {} of node {node}; its NodeTopology has no {what}. Check the name in the slice, and that \
         node-driver sees the NIC",
        unknown.len(),
        counted(published.len(), "device"),
        device.id().device,
    );
    let place = format!("driver {}", driver.driver);
    Some(DoctorFinding { severity: Severity::Warning, place, message })
}

fn nothing(driver: &str) -> DoctorFinding {
    let message =
        "publishes no device; check whether it runs, and `spec.driver` of its ResourceSlices";
    warning(driver, message.to_owned())
}

fn no_class(
    driver: &str,
    classes: &[&str],
    view: &ClusterView,
    published: &[DeviceOnNode<'_>],
) -> DoctorFinding {
    let classes = classes.join(", ");
    let instead = match selecting(view, published) {
        Some(class) => format!("DeviceClass {class} selects its devices: name it in the entry"),
        None => "create it, or name another one in the entry".to_owned(),
    };
    warning(driver, format!("has no DeviceClass {classes}, by which claims request it; {instead}"))
}

fn no_address(driver: &str, published: &[DeviceOnNode<'_>]) -> DoctorFinding {
    let names = published.iter().flat_map(|(_, device)| device.attributes());
    let names: BTreeSet<String> = names
        .filter(|(_, value)| is_address(&value.to_string()))
        .map(|(name, _)| qualified(driver, &name.to_string()))
        .collect();
    let instead = match names.first() {
        Some(name) => format!("attribute {name} has one: set `address: {{attribute: {name}}}`"),
        None => "set `address` to where it is".to_owned(),
    };
    let message = format!(
        "publishes no PCI address that its entry finds, so the distance of its devices is unknown; \
         {instead}"
    );
    warning(driver, message)
}

/// The full name of an attribute: a driver publishes its own without its domain.
fn qualified(driver: &str, name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{driver}/{name}") }
}

/// Whether an attribute's value, as CEL writes it, is a PCI address.
fn is_address(value: &str) -> bool {
    value.trim_matches('"').parse::<PciAddress>().is_ok()
}

/// The values that an attribute has.
fn values(name: &str, published: &[DeviceOnNode<'_>]) -> String {
    let values: BTreeSet<&str> = published.iter().filter_map(|(_, it)| text(it, name)).collect();
    let values: Vec<_> = values.into_iter().collect();
    if values.is_empty() {
        return String::new();
    }
    format!("; the values are {}", values.join(", "))
}

/// A class that selects a device.
fn selecting<'v>(view: &'v ClusterView, published: &[DeviceOnNode<'_>]) -> Option<&'v str> {
    let mut classes: Vec<&str> = view.inventory().class_names().map(|name| &**name).collect();
    classes.sort_unstable();
    classes.into_iter().find(|name| {
        view.inventory().class(name).is_some_and(|class| {
            let mut devices = published.iter().map(|(_, device)| device);
            !class.selectors.is_empty() && devices.any(|it| is_in(class, it, view.settings()))
        })
    })
}

/// A driver that no table names, if its devices are accelerators or NICs of a graph, or PCI functions
/// that no graph knows.
fn unknown(
    view: &ClusterView,
    driver: &str,
    published: &[DeviceOnNode<'_>],
) -> Option<DoctorFinding> {
    let looks = published.iter().filter_map(|it| Looks::new(view, *it)).min()?;
    let class = selecting(view, published).unwrap_or("CLASS");
    let (severity, what, entry) = match looks {
        Looks::Accelerator(vendor) => (
            Severity::Warning,
            "accelerators, but the table of drivers does not have it, so no pod gets NICs near them",
            format!(
                "accelerators: [{{driver: {driver}, class: {class}, pciVendor: \"{vendor:04x}\", \
                 pciClasses: [...]}}]"
            ),
        ),
        Looks::Nic => (
            Severity::Warning,
            "NICs, but the table of drivers does not have it, so no annotated pod gets them",
            format!("nics: [{{driver: {driver}, classes: [{class}]}}]"),
        ),
        Looks::Unknown => (
            Severity::Note,
            "PCI devices that no graph knows; if they are accelerators, the table of drivers lacks \
             them",
            format!(
                "accelerators: [{{driver: {driver}, class: {class}, pciVendor: ..., \
                 pciClasses: [...]}}]"
            ),
        ),
    };
    let message = format!("publishes {what}; add to the drivers file `{entry}`");
    Some(DoctorFinding { severity, place: format!("driver {driver}"), message })
}
