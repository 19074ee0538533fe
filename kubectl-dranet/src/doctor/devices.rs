//! Devices that no new pod gets, and NICs with two owners.

use super::finding::Findings;
use super::scene::Scene;
use crate::nodes::NodeState;
use crate::text::counted;
use cluster_model::drivers::named_by_file;
use cluster_model::gpu_drivers;
use cluster_model::names::attribute;
use cluster_model::nic_plugins::can_be_nics;
use cluster_model::node_devices::NodeDevice;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of NICs that a finding names.
const NAMED: usize = 5;

/// GPUs that no new pod gets because of a taint.
pub(super) fn gpus(scene: &Scene<'_>, found: &mut Findings) {
    unusable(
        found,
        &troubles(&scene.states, |state| &state.tainted_gpus),
        ("GPU", "tainted"),
        "whoever set the taint knows why: the GPU driver, or a DeviceTaintRule (`kubectl get \
         devicetaintrules`)",
    );
}

/// NICs that no new pod gets.
pub(super) fn nics(scene: &Scene<'_>, found: &mut Findings) {
    unusable(
        found,
        &troubles(&scene.states, |state| &state.ports),
        ("NIC", "down or degraded"),
        "check the cable, the switch port and, for a slow link, the slot (`kubectl dranet graph NODE \
         --path`)",
    );
    unusable(
        found,
        &troubles(&scene.states, |state| &state.tainted_nics),
        ("NIC", "tainted"),
        "whoever set the taint knows why: a DeviceTaintRule (`kubectl get devicetaintrules`), or the \
         driver (`kubectl dranet top NODE`)",
    );
}

/// Troubles of all nodes, each with its node.
fn troubles(
    states: &BTreeMap<&str, NodeState>,
    of: impl Fn(&NodeState) -> &Vec<String>,
) -> Vec<String> {
    let all = states.iter();
    all.flat_map(|(node, state)| of(state).iter().map(move |it| format!("{node} {it}"))).collect()
}

/// A finding on devices that no new pod gets.
fn unusable(
    found: &mut Findings,
    troubles: &[String],
    (device, state): (&str, &str),
    remedy: &str,
) {
    let named = troubles.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = match troubles.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let is = match troubles.len() {
        0 => return,
        1 => "is",
        _ => "are",
    };
    let message = format!("{is} {state}: {named}{more}; {remedy}");
    found.warning(counted(troubles.len(), device), message);
}

/// Nodes whose NICs a device plugin offers as well.
pub(super) fn plugins(scene: &Scene<'_>, found: &mut Findings) {
    let mut offering: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for node in scene.seen.of_kind("Node") {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let Some((name, state)) = scene.states.get_key_value(name) else { continue };
        let resources = node["status"]["capacity"].as_object().into_iter().flatten();
        let offered = resources.filter(|(_, amount)| amount.as_str().is_some_and(|it| it != "0"));
        for (resource, _) in offered {
            if can_be_nics(resource) && state.nics.all > 0 {
                offering.entry(resource.clone()).or_default().insert(name);
            }
        }
    }
    found.on_each(offering, |resource| {
        format!(
            "offers {resource} by a device plugin, and NICs by a DRA driver; if these are the same \
             devices, two pods can get one NIC: remove them from the plugin's configuration"
        )
    });
}

/// `DeviceTaintRules` that select every device of the cluster (Kubernetes issue 141422).
pub(super) fn rules(scene: &Scene<'_>, found: &mut Findings) {
    for rule in scene.seen.of_kind("DeviceTaintRule") {
        let selector = &rule["spec"]["deviceSelector"];
        let fields = ["driver", "pool", "device"];
        let is_for_all = selector.is_object() && fields.iter().all(|it| selector[it].is_null());
        let effect = match rule["spec"]["taint"]["effect"].as_str() {
            Some("NoExecute") if is_for_all => {
                "so no new pod gets a device, and pods that have some are deleted"
            }
            Some("NoSchedule") if is_for_all => "so no new pod gets a device",
            _ => continue,
        };
        let message = format!(
            "selects every device of every driver, {effect}; name a driver, pool or device in its \
             spec.deviceSelector"
        );
        let name = rule["metadata"]["name"].as_str().unwrap_or_default();
        found.warning(format!("DeviceTaintRule {name}"), message);
    }
}

/// GPUs that cannot be found in the graph. An entry of the drivers file has a finding of its own.
pub(super) fn addresses(scene: &Scene<'_>, found: &mut Findings) {
    let view = scene.view;
    let mut without: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in view.present_nodes() {
        let lost =
            NodeDevice::all(view, node).filter(|it| it.role.is_gpu() && it.address.is_none());
        for driver in lost.filter_map(|gpu| gpu_drivers::by_name(gpu.device.driver())) {
            if !named_by_file().contains(&driver.driver) {
                without.entry(driver.driver).or_default().insert(node);
            }
        }
    }
    found.on_each(without, |driver| {
        format!(
            "has GPUs without the attribute {}, so their distance to NICs is unknown; upgrade \
             {driver}",
            attribute::PCI_BUS_ID
        )
    });
}
