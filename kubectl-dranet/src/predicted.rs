//! What happens to a pod on each node, in words.

use crate::answer::ExpectedAtStart;
use crate::device_names;
use crate::text::{counted, listed};
use admission::admit::Planned;
use cluster_model::node_devices::NodeDevices;
use cluster_model::plugin_machines::places;
use cluster_model::predict::{Fit, Prediction};
use cluster_model::room::{Attempt, PodClaims, WhyNot};
use cluster_model::view::{ClusterView, Index as _, ObjectKey, ViewError};
use dra_allocator::{ClaimAllocation, Device, DeviceId};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{PathKind, PciAddress, Topology};

/// Adds what admission makes for a pod in a namespace to the view: its template, and that of its
/// channel unless NVIDIA's driver has created it.
///
/// # Errors
/// The view does not accept it.
pub(crate) fn add_planned(
    view: &mut ClusterView,
    planned: &Planned,
    namespace: &str,
) -> Result<(), ViewError> {
    let mut template = planned.template.clone();
    template.metadata.namespace = Some(namespace.to_owned());
    view.apply(template)?;
    let Some(mut channel) = planned.channel.clone() else { return Ok(()) };
    channel.metadata.namespace = Some(namespace.to_owned());
    if view.template(&ObjectKey::new(&channel.metadata)).is_none() {
        view.apply(channel)?;
    }
    Ok(())
}

/// The pools of an allocated claim's devices. Pools of node-local devices have the node's
/// name.
pub(crate) fn pools_of(view: &ClusterView, claim: &ObjectKey) -> BTreeSet<String> {
    view.held_by(claim).map(|device| device.pool.to_string()).collect()
}

/// Nodes with one result.
#[derive(Debug)]
pub(crate) struct AlikeNodes<'n> {
    pub(crate) is_fit: bool,
    /// The devices that a node gives, or why the pod does not fit.
    pub(crate) text: String,
    pub(crate) nodes: Vec<&'n str>,
}

/// The nodes whose devices decide: those that would give the same devices to the claims of a pod, or
/// none for the same reason. Those where the pod fits come first.
pub(crate) fn alike_nodes<'n>(
    view: &ClusterView,
    attempt: &Attempt<'_, 'n>,
    claims: &PodClaims,
) -> Vec<AlikeNodes<'n>> {
    let mut groups: BTreeMap<(bool, String), Vec<&str>> = BTreeMap::new();
    for (node, result) in attempt.each() {
        let (is_fit, text) = match &result {
            Prediction::Fits(fit) => (true, gives(view, node, fit, claims)),
            Prediction::No(why) if why.is_of_devices() => (false, verdict(why)),
            Prediction::No(_) => continue,
        };
        groups.entry((is_fit, text)).or_default().push(node);
    }
    let groups = groups.into_iter().map(|((is_fit, text), mut nodes)| {
        nodes.sort_unstable();
        AlikeNodes { is_fit, text, nodes }
    });
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by(|one, other| (!one.is_fit, &one.nodes).cmp(&(!other.is_fit, &other.nodes)));
    groups
}

/// Why the devices of a node do not serve a pod.
pub(crate) fn verdict(why: &WhyNot) -> String {
    match why {
        WhyNot::NoFit(_) => format!("does not fit: {why}"),
        WhyNot::Failed(_) => format!("stops scheduling on all nodes: {why}"),
        why if why.is_unknown() => format!("not known: {why}"),
        why => why.to_string(),
    }
}

/// The devices that a node gives to the claims of a pod.
fn gives(view: &ClusterView, node: &str, fit: &Fit, claims: &PodClaims) -> String {
    let Fit { allocations, is_exact } = fit;
    let mut devices = given(view, node, allocations);
    let specs = claims.open.iter().map(|open| &*open.spec);
    if let Some(expected) = ExpectedAtStart::new(view, node, specs, allocations) {
        devices = format!("{devices}, {}", expected.sentence());
    }
    if *is_exact { devices } else { format!("{devices} (one of several choices)") }
}

/// The devices that a node gives: `GPU0 with mlx5_0 and mlx5_1 (NODE)`, then those that are in no
/// such pair: NICs by their short name, others by driver and name.
fn given(view: &ClusterView, node: &str, allocations: &[ClaimAllocation]) -> String {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    let ids: Vec<&DeviceId> = results.map(|result| &result.device).collect();
    let devices = NodeDevices::new(view, node);
    let given =
        devices.as_ref().map(|it| [&it.gpus, &it.nics].map(|all| names((view, node), all, &ids)));
    let [gpus, nics] = given.unwrap_or_default();
    let mut parts = Vec::new();
    if let Some(devices) = &devices {
        parts.extend(paired(devices.topology, &gpus, &nics));
    }
    let is_paired = !parts.is_empty();
    let places: BTreeSet<&DeviceId> = places(view, node).map(Device::id).collect();
    let (late, ids): (Vec<&DeviceId>, Vec<&DeviceId>) =
        ids.into_iter().partition(|id| places.contains(id));
    for id in ids {
        let known = devices.iter().flat_map(|it| it.gpus.values().chain(it.nics.values()));
        match known.into_iter().find(|device| device.id() == id) {
            Some(_) if is_paired => {}
            Some(device) => parts.push(device_names::short(view, node, device)),
            None => parts.push(format!("{} {}", id.driver, id.device)),
        }
    }
    let are = if late.len() == 1 { "is" } else { "are" };
    let chosen = format!("{} that {are} chosen when the pod starts", counted(late.len(), "NIC"));
    parts.extend((!late.is_empty()).then_some(chosen));
    parts.join(", ")
}

/// The short names of the devices with these IDs, among all of a kind.
fn names(
    (view, node): (&ClusterView, &str),
    all: &BTreeMap<PciAddress, &Device>,
    ids: &[&DeviceId],
) -> BTreeMap<PciAddress, String> {
    let own = all.iter().filter(|(_, device)| ids.contains(&device.id()));
    own.map(|(address, device)| (*address, device_names::short(view, node, device))).collect()
}

/// Each of these GPUs with its NICs and the farthest path to them: `GPU0 with mlx5_0 (NODE)`.
pub(crate) fn paired(
    topology: &Topology,
    gpus: &BTreeMap<PciAddress, String>,
    nics: &BTreeMap<PciAddress, String>,
) -> Vec<String> {
    let [gpus_at, nics_at] = [gpus, nics].map(|names| names.keys().copied().collect::<Vec<_>>());
    let mut by_gpu: BTreeMap<PciAddress, (Vec<String>, Option<PathKind>)> = BTreeMap::new();
    for pair in topology.pairs_of(&gpus_at, &nics_at) {
        let (names, farthest) = by_gpu.entry(pair.gpu).or_default();
        names.extend(nics.get(&pair.nic).cloned());
        *farthest = (*farthest).max(Some(pair.path));
    }
    by_gpu
        .iter()
        .map(|(gpu, (nics, path))| {
            let path = path.map(|path| format!(" ({path})")).unwrap_or_default();
            let gpu = gpus.get(gpu).cloned().unwrap_or_default();
            format!("{gpu} with {}{path}", listed(nics))
        })
        .collect()
}
