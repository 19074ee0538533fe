//! Why no node has all that a pod asks for: what is there, what the classes select of it, and which pools the
//! scheduler ignores.

use super::{on_the_host, role_words, with_profile};
use crate::denial::{Denial, cut};
use crate::intent::Intent;
use crate::plan::among::Among;
use crate::wording::{count, nodes};
use cluster_model::machines::{NotSelected, Selection, is_in};
use cluster_model::names::annotation;
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::{NodeDevices, parts, text};
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::ClusterView;
use dra_allocator::{Class, Device, PoolProblem};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The longest expression that is quoted with its error, in characters.
const REASON_MAX: usize = 200;

/// Why no node has both GPUs and NICs.
pub(crate) fn nothing(intent: &Intent, among: &Among<'_>, selection: &Selection<'_>) -> Denial {
    let view = among.view;
    let candidates: Vec<&str> = view.present_nodes().filter(|node| among.allows(node)).collect();
    let devices: Vec<_> = candidates.iter().filter_map(|it| NodeDevices::new(view, it)).collect();
    let gpus = SelectableDevices::gpus(view, &devices, selection);
    let plugins = selection.gpu_driver.extended_resources.iter().flat_map(|resource| {
        view.nodes_with_plugin(resource).filter(|node| among.allows(node)).map(move |_| *resource)
    });
    let plugins: Vec<_> = plugins.collect();
    intent.deny(match plugins.first() {
        Some(resource) if gpus.published == 0 => by_plugin(plugins.len(), resource, selection),
        _ if view.present_nodes().next().is_none() => "the cluster has no node".to_owned(),
        _ if candidates.is_empty() => {
            "no node matches the pod's nodeSelector or node affinity".to_owned()
        }
        _ if devices.is_empty() => format!(
            "no NodeTopology describes how GPUs and NICs are connected on the {} that the pod can \
             run on; dranet's node-driver publishes it",
            count(candidates.len(), "node")
        ),
        _ => {
            let nics = SelectableDevices::nics(view, &devices, (intent, selection));
            incomplete(intent, selection, devices.len(), [&gpus, &nics])
                + &ignored(view, &candidates, selection)
        }
    })
}

/// `2 nodes offer nvidia.com/gpu by a device plugin only, …`.
fn by_plugin(nodes: usize, resource: &str, selection: &Selection<'_>) -> String {
    let offer = if nodes == 1 { "offers" } else { "offer" };
    format!(
        "{} {offer} {resource} by a device plugin only, which no claim can join with NICs; set a limit \
         of {resource} for all GPUs of a node, or install the DRA driver {}",
        count(nodes, "node"),
        selection.gpu_driver.driver
    )
}

/// How many nodes have what, and which class selects nothing of what is there.
fn incomplete(
    intent: &Intent,
    selection: &Selection<'_>,
    with_graph: usize,
    [gpus, nics]: [&SelectableDevices; 2],
) -> String {
    format!(
        "no node that the pod can run on has all of a NodeTopology, GPUs of driver {} in class \
         `{}`{} and {}RDMA NICs of driver {} in class `{}`: of {} with a NodeTopology, {} with such \
         GPUs and {} with such NICs{}{}{}",
        selection.gpu_driver.driver,
        selection.gpu_class.map(|class| &*class.name).unwrap_or_default(),
        with_profile(selection),
        role_words(intent.nic_role),
        selection.nics.nic_driver.driver,
        selection.nics.nic_class.name,
        count(with_graph, "node"),
        gpus.nodes,
        nics.nodes,
        gpus.excluded.as_deref().unwrap_or_default(),
        nics.excluded.as_deref().unwrap_or_default(),
        on_the_host(intent),
    )
}

/// The GPUs or the NICs that a claim could draw from, if its class selected them.
struct SelectableDevices {
    /// How many of them there are.
    published: usize,
    /// The nodes with some that the class selects.
    nodes: usize,
    /// If it selects none of them: why not the first.
    excluded: Option<String>,
}

impl SelectableDevices {
    fn gpus(view: &ClusterView, nodes: &[NodeDevices<'_>], selection: &Selection<'_>) -> Self {
        let driver = selection.gpu_driver;
        let of_driver = nodes.iter().map(|node| {
            let whole = node.gpus.values().filter(|gpu| *gpu.id().driver == *driver.driver);
            match driver.part.map(|_| parts(view, node.node, driver, |_| true)) {
                Some(parts) if !parts.is_empty() => parts.into_values().collect(),
                _ => whole.copied().collect(),
            }
        });
        let of_driver: Vec<Vec<&Device>> = of_driver.collect();
        let all = Self::of(view, of_driver, ("GPU", selection.gpu_class));
        let (Some(part), Some(profile)) = (driver.part, selection.gpu_profile) else { return all };
        let with_profile = nodes.iter().filter(|node| {
            let parts = parts(view, node.node, driver, |it| {
                text(it, part.profile_attribute) == Some(profile)
            });
            !parts.is_empty()
        });
        let number = if all.nodes == 0 { 0 } else { with_profile.count() };
        let there = profiles(view, nodes, (driver.driver, part.profile_attribute));
        let there: Vec<String> = there.iter().map(|profile| format!("`{profile}`")).collect();
        let others = (number == 0 && !there.is_empty())
            .then(|| format!("; the profiles there are {}", there.join(", ")));
        Self { nodes: number, excluded: all.excluded.or(others), ..all }
    }

    fn nics(
        view: &ClusterView,
        nodes: &[NodeDevices<'_>],
        (intent, selection): (&Intent, &Selection<'_>),
    ) -> Self {
        let driver = selection.nics.nic_driver;
        let suitable = nodes.iter().map(|node| {
            let suitable = node.nics.values().copied().filter(|nic| {
                *nic.id().driver == *driver.driver
                    && driver.is_rdma(*nic)
                    && nic.nic_role() == intent.nic_role
                    && !(intent.host_network && driver.may_have_interface(nic))
            });
            suitable.collect()
        });
        let all = Self::of(view, suitable.collect(), ("RDMA NIC", Some(selection.nics.nic_class)));
        let others = (all.published == 0).then(|| without_rdma(nodes, driver, intent)).flatten();
        Self { excluded: all.excluded.or(others), ..all }
    }

    /// What a class selects of the devices of each node.
    fn of(
        view: &ClusterView,
        nodes: Vec<Vec<&Device>>,
        (noun, class): (&str, Option<&Class>),
    ) -> Self {
        let settings = view.settings();
        let selected = nodes.iter().filter(|devices| {
            devices.iter().any(|it| class.is_none_or(|class| is_in(class, it, settings)))
        });
        let selected = selected.count();
        let all: Vec<&Device> = nodes.into_iter().flatten().collect();
        let excluded = match (class, all.first()) {
            (Some(class), Some(first)) if selected == 0 => NotSelected::by(class, first, settings)
                .map(|why| {
                    format!(
                        "; class `{}` selects none of {} of that driver: on {} of {}, {}",
                        class.name,
                        count(all.len(), noun),
                        first.id().device,
                        first.id().pool,
                        cut(&why.to_string(), REASON_MAX),
                    )
                }),
            _ => None,
        };
        Self { published: all.len(), nodes: selected, excluded }
    }
}

/// That nodes have NICs of our driver that would do but for RDMA, and who gets these.
pub(crate) fn without_rdma(
    nodes: &[NodeDevices<'_>],
    driver: &NicDriver,
    intent: &Intent,
) -> Option<String> {
    let with_others = nodes.iter().filter(|node| {
        node.nics.values().any(|nic| {
            driver.is_ours()
                && *nic.id().driver == *driver.driver
                && !driver.is_rdma(*nic)
                && nic.nic_role() == intent.nic_role
        })
    });
    let number = with_others.count();
    (number > 0 && !intent.host_network).then(|| {
        format!(
            "; {} {} NICs without RDMA: pods get these if {} names a DeviceClass that excludes NICs with RDMA",
            count(number, "node"),
            if number == 1 { "has" } else { "have" },
            annotation::NIC_CLASS,
        )
    })
}

/// The profiles of the parts of GPUs on these nodes.
fn profiles<'v>(
    view: &'v ClusterView,
    nodes: &[NodeDevices<'_>],
    (driver, attribute): (&str, &str),
) -> BTreeSet<&'v str> {
    let devices = nodes.iter().flat_map(|node| {
        view.inventory().devices_on(node.node, view.settings()).unwrap_or_default()
    });
    let parts = devices.filter(|device| *device.id().driver == *driver);
    parts.filter_map(|part| text(part, attribute)).collect()
}

/// The pools of the two drivers that the scheduler ignores on these nodes: their devices are not there for it.
fn ignored(view: &ClusterView, candidates: &[&str], selection: &Selection<'_>) -> String {
    let drivers = [selection.gpu_driver.driver, selection.nics.nic_driver.driver];
    let mut broken: BTreeMap<(&str, PoolProblem), Vec<String>> = BTreeMap::new();
    for node in candidates {
        let pools = view.inventory().broken_pools_on(node, view.settings()).unwrap_or_default();
        for (pool, problem) in
            pools.into_iter().filter(|(pool, _)| drivers.contains(&&*pool.driver))
        {
            broken.entry((&pool.driver, problem)).or_default().push((*node).to_owned());
        }
    }
    let mut text = String::new();
    for ((driver, problem), names) in broken {
        let has = if names.len() == 1 { "has" } else { "have" };
        // Writing to a String cannot fail.
        _ = write!(
            text,
            "; {} {has} a pool of driver {driver} that the scheduler ignores ({problem})",
            nodes(&names)
        );
    }
    text
}
