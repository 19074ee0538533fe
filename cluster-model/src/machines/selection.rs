//! Which devices of a node a claim may draw from.

use crate::gpu_drivers::GpuDriver;
use crate::names::{attribute, label};
use crate::nic_drivers::NicDriver;
use crate::node_devices::{NodeDevices, int, parts, published, text};
use crate::published_device::PublishedDevice as _;
use crate::view::ClusterView;
use dra_allocator::cel::Selector;
use dra_allocator::{Budget, Class, Device, Settings};
use std::collections::BTreeMap;
use std::fmt;
use topology_graph::{NicRole, PciAddress};

/// The devices that a claim may draw from.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The driver of the GPUs.
    pub gpu_driver: &'static GpuDriver,
    /// The class of the GPUs; `None` if the claim requests none.
    pub gpu_class: Option<&'a Class>,
    /// The profile of the parts of GPUs, if the driver is one of [`parts`] and the claim names one.
    ///
    /// [`parts`]: crate::gpu_drivers::parts
    pub gpu_profile: Option<&'a str>,
    /// The NICs.
    pub nics: NicSelection<'a>,
    /// The class of the CPUs, if the claim requests any.
    pub cpu_class: Option<&'a Class>,
    /// The class of the NVMe devices, if the claim requests any.
    pub nvme_class: Option<&'a Class>,
}

/// The NICs that a claim may draw from.
#[derive(Clone, Copy, Debug)]
pub struct NicSelection<'a> {
    /// The driver of the NICs.
    pub nic_driver: &'static NicDriver,
    /// The class of the NICs.
    pub nic_class: &'a Class,
    /// What the NICs are for.
    pub nic_role: NicRole,
    /// True to exclude NICs with a network interface, which cannot be moved into a pod on the host
    /// network.
    pub without_interface: bool,
    /// True to exclude NICs that claims cannot share. Machines then also differ by the capacity of
    /// their NICs.
    pub only_shared: bool,
}

/// The NICs that the selection's class and driver cannot tell from the selected ones, but that the
/// graph has another role for.
pub(crate) type OtherNics<'a> = BTreeMap<PciAddress, &'a Device>;

/// The selected devices of a node, and the NICs of other roles that only the graph tells from them.
pub(super) fn selected<'a>(
    view: &'a ClusterView,
    node: &'a str,
    selection: &Selection<'_>,
) -> Option<(NodeDevices<'a>, OtherNics<'a>)> {
    let Selection { gpu_driver, gpu_class, gpu_profile, nics, .. } = *selection;
    let mut devices = NodeDevices::with_nics_of(view, node, std::slice::from_ref(nics.nic_driver))?;
    if let Some(part) = gpu_driver.part {
        devices.gpus = parts(view, node, gpu_driver, |gpu| {
            gpu_profile.is_none_or(|profile| text(gpu, part.profile_attribute) == Some(profile))
                && gpu_class.is_some_and(|class| is_in(class, gpu, view.settings()))
        });
    }
    devices.gpus.retain(|_, gpu| {
        *gpu.id().driver == *gpu_driver.driver
            && gpu_class.is_some_and(|class| is_in(class, gpu, view.settings()))
    });
    let others = keep_nics(view, &mut devices, nics);
    let has_gpus = gpu_class.is_none() || !devices.gpus.is_empty();
    (has_gpus && !devices.nics.is_empty()).then_some((devices, others))
}

/// Keeps the NICs that a claim may draw from. Returns those of other roles that only the graph tells
/// from them.
pub(crate) fn keep_nics<'a>(
    view: &ClusterView,
    devices: &mut NodeDevices<'a>,
    selection: NicSelection<'_>,
) -> OtherNics<'a> {
    let NicSelection { nic_driver, nic_class, nic_role, without_interface, only_shared } =
        selection;
    devices.nics.retain(|_, nic| {
        *nic.id().driver == *nic_driver.driver
            && nic_driver.is_rdma(*nic)
            && (!nic_driver.has_roles || nic.nic_role() == nic_role)
            && !(without_interface && nic_driver.may_have_interface(nic))
            && (!only_shared || nic.allows_multiple_allocations())
            && is_in(nic_class, nic, view.settings())
    });
    let mut others = BTreeMap::new();
    if !nic_driver.has_roles {
        let topology = devices.topology;
        others = devices.nics.clone();
        devices.nics.retain(|nic, _| topology.nic_role(*nic).is_none_or(|it| it == nic_role));
        others.retain(|nic, _| !devices.nics.contains_key(nic));
    }
    keep_one_class(devices);
    others
}

/// The name that people have for the machine type of a node: the label of its cloud, our own label,
/// or what its NICs say. `None` if there is none; our label can have the shape.
pub fn type_name(view: &ClusterView, node: &str) -> Option<String> {
    let shape = view.topology(node).map(|graph| graph.shape().to_string());
    let own = view.node_label(node, label::MACHINE_TYPE);
    let own = own.filter(|own| Some(*own) != shape.as_deref());
    let name = view.node_label(node, label::INSTANCE_TYPE).or(own);
    name.map(str::to_owned).or_else(|| type_of_devices(view, node))
}

/// The machine type that devices of a node name.
fn type_of_devices(view: &ClusterView, node: &str) -> Option<String> {
    published(view, node).find_map(|(_, device)| {
        let mut names = attribute::MACHINE_TYPES.iter();
        names.find_map(|name| text(device, name)).map(str::to_owned)
    })
}

/// The label that names the machine type of a node: the fabric controller's, or else the cloud's.
/// Claims need none if the NICs publish the shape.
pub(super) fn type_label(
    view: &ClusterView,
    node: &str,
    devices: &NodeDevices<'_>,
) -> Option<(&'static str, String)> {
    if devices.nics.values().any(|nic| nic.attribute(attribute::SHAPE).is_some()) {
        return None;
    }
    let labels = &view.inventory().node(node)?.labels;
    [label::MACHINE_TYPE, label::INSTANCE_TYPE]
        .into_iter()
        .find_map(|name| Some((name, labels.get(name)?.to_string())))
}

/// Keeps the NICs of one link type and rate class, the fastest. Compute NICs are of one class
/// already, so that this concerns storage NICs. A NIC that says neither is kept, and so is one whose
/// rate a capacity replaces.
fn keep_one_class(devices: &mut NodeDevices<'_>) {
    let others = devices.nics.values().filter(|nic| nic.nic_role() != NicRole::Compute);
    let Some(best) = others.filter_map(|nic| rate_class(nic)).max() else { return };
    devices.nics.retain(|_, nic| rate_class(nic).is_none_or(|class| class == best));
}

/// The rate and the link type of a NIC, if it says both.
fn rate_class(nic: &Device) -> Option<(i64, &str)> {
    Some((int(nic, attribute::RATE_GBPS)?, text(nic, attribute::LINK_TYPE)?))
}

/// Returns true if a class selects a device. A selector that fails on the device does not select
/// it: a claim of that class would fail everywhere.
pub fn is_in(class: &Class, device: &Device, settings: &Settings) -> bool {
    class.selectors.iter().all(|it| evaluated(it, device, settings) == Ok(true))
}

/// Why a class does not select a device: the first of its selectors that is not true there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotSelected {
    /// The CEL expression.
    pub expression: String,
    /// Why it fails; `None` if it is false.
    pub failure: Option<String>,
}

impl NotSelected {
    /// `None` if the class selects the device.
    pub fn by(class: &Class, device: &Device, settings: &Settings) -> Option<Self> {
        class.selectors.iter().find_map(|selector| {
            let failure = match evaluated(selector, device, settings) {
                Ok(true) => return None,
                Ok(false) => None,
                Err(failure) => Some(failure),
            };
            Some(Self { expression: selector.expression().to_string(), failure })
        })
    }
}

impl fmt::Display for NotSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(f, "`{}` is false", self.expression),
            Some(failure) => write!(f, "`{}` fails: {failure}", self.expression),
        }
    }
}

/// The value of a selector for a device, or why it has none. The operator writes classes, so no budget
/// bounds them.
fn evaluated(selector: &Selector, device: &Device, settings: &Settings) -> Result<bool, String> {
    let budget = Budget::unlimited();
    let compiled = selector.compiled(&budget).map_err(|error| error.to_string())?;
    compiled.matches_with(device, settings, &budget).map_err(|error| error.to_string())
}
