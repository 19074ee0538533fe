//! Predicts what each node would allocate for a claim.

use crate::answer::ExpectedAtStart;
use crate::device_names;
use crate::text::{counted, listed};
use admission::admit::Planned;
use cluster_model::node_devices::NodeDevices;
use cluster_model::plugin_machines::places;
use cluster_model::predict::{Prediction, predict_each};
use cluster_model::view::{ClusterView, Index as _, ObjectKey, ViewError};
use dra_allocator::{Claim, ClaimAllocation, ClaimName, Device, DeviceId};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{PathKind, PciAddress};

/// The existing nodes, without remembered ones.
pub(crate) fn nodes(view: &ClusterView) -> impl Iterator<Item = &str> {
    let names = view.inventory().node_names().map(|name| &**name);
    names.filter(|name| !view.is_remembered(name))
}

/// Adds the template of a pod's channel to the view, unless NVIDIA's driver has created it.
///
/// # Errors
/// The view does not accept it.
pub(crate) fn predict_channel(planned: &Planned, view: &mut ClusterView) -> Result<(), ViewError> {
    let Some(mut template) = planned.channel.clone() else { return Ok(()) };
    // The API server fills this in.
    if template.metadata.namespace.as_deref().is_none_or(str::is_empty) {
        template.metadata.namespace = Some("default".to_owned());
    }
    if view.template(&ObjectKey::new(&template.metadata)).is_none() {
        view.apply(template)?;
    }
    Ok(())
}

/// The pools of an allocated claim's devices. Pools of node-local devices have the node's
/// name.
pub(crate) fn pools_of(view: &ClusterView, claim: &ObjectKey) -> BTreeSet<String> {
    let claim = ClaimName::new(claim.namespace.as_str(), claim.name.as_str());
    view.inventory().held_by(&claim).map(|device| device.pool.to_string()).collect()
}

/// Those of these nodes that would allocate the same devices to these claims now, or none for the same reason, as a text and
/// their names; those where it fits come first.
pub(crate) fn devices<'v>(
    view: &'v ClusterView,
    nodes: impl Iterator<Item = &'v str>,
    claims: &[Claim],
    spec: &ResourceClaimSpec,
) -> Vec<(String, Vec<&'v str>)> {
    let predictions = predict_each(view, nodes, claims, view.inventory().state(), &|| false);
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, prediction) in predictions {
        groups.entry(outcome(view, node, &prediction, spec)).or_default().push(node);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    for (_, nodes) in &mut groups {
        nodes.sort_unstable();
    }
    groups.sort_by(|(one, a), (other, b)| (!is_fit(one), a).cmp(&(!is_fit(other), b)));
    groups
}

/// Whether the text of a group says that the pod fits.
pub(crate) fn is_fit(outcome: &str) -> bool {
    !outcome.starts_with(NO_FIT) && !outcome.starts_with(UNKNOWN)
}

const NO_FIT: &str = "does not fit";
const UNKNOWN: &str = "not known";

fn outcome(
    view: &ClusterView,
    node: &str,
    prediction: &Prediction,
    spec: &ResourceClaimSpec,
) -> String {
    match prediction {
        Prediction::Fits { allocations, is_exact } => {
            let mut devices = given(view, node, allocations);
            if let Some(expected) =
                ExpectedAtStart::new(view, node, [spec].into_iter(), allocations)
            {
                devices = format!("{devices}, {}", expected.sentence());
            }
            if *is_exact { devices } else { format!("{devices} (one of several choices)") }
        }
        Prediction::NoFit(reason) => format!("{NO_FIT}: {reason}"),
        Prediction::Unknown(reason) => format!("{UNKNOWN}: {reason}"),
    }
}

/// The devices that a node gives: `GPU0 with mlx5_0 and mlx5_1 (NODE)`, then those that are in no
/// such pair: NICs by their short name, others by driver and name.
fn given(view: &ClusterView, node: &str, allocations: &[ClaimAllocation]) -> String {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    let ids: Vec<&DeviceId> = results.map(|result| &result.device).collect();
    let devices = NodeDevices::new(view, node);
    let of = |all: &BTreeMap<PciAddress, &Device>| {
        let own = all.iter().filter(|(_, device)| ids.contains(&device.id()));
        own.map(|(address, device)| (*address, device_names::short(view, node, device)))
            .collect::<BTreeMap<_, _>>()
    };
    let (gpus, nics) = devices.as_ref().map(|it| (of(&it.gpus), of(&it.nics))).unwrap_or_default();
    let mut parts = Vec::new();
    if let Some(devices) = &devices {
        parts.extend(paired(devices, &gpus, &nics));
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

/// Each GPU with its NICs and the farthest path to them.
fn paired(
    devices: &NodeDevices<'_>,
    gpus: &BTreeMap<PciAddress, String>,
    nics: &BTreeMap<PciAddress, String>,
) -> Vec<String> {
    let addresses = |of: &BTreeMap<PciAddress, String>| of.keys().copied().collect::<Vec<_>>();
    let mut by_gpu: BTreeMap<PciAddress, (Vec<String>, Option<PathKind>)> = BTreeMap::new();
    for pair in devices.topology.pairs_of(&addresses(gpus), &addresses(nics)) {
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
