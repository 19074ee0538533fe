//! Devices that no new pod gets, and NICs with two owners.

use crate::answer::{DoctorFinding, Severity};
use crate::nodes::NodeState;
use crate::predicted::nodes;
use crate::source::Seen;
use crate::text::counted;
use cluster_model::drivers::named_by_file;
use cluster_model::gpu_drivers;
use cluster_model::names::attribute;
use cluster_model::nic_plugins::can_be_nics;
use cluster_model::node_devices::NodeDevice;
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::room::Nodes;
use cluster_model::view::ClusterView;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of NICs that a finding names.
const NAMED: usize = 5;

/// What is wrong with devices, by check.
pub(super) struct Devices {
    /// GPUs that no new pod gets, or that no NIC is known to be near to.
    pub(super) gpus: Vec<DoctorFinding>,
    /// NICs that no new pod gets.
    pub(super) nics: Option<DoctorFinding>,
    /// NICs with two owners.
    pub(super) owners: Vec<DoctorFinding>,
}

pub(super) fn examine(seen: &Seen, facts: &Nodes) -> Devices {
    let view = &seen.view;
    let states: BTreeMap<&str, NodeState> =
        nodes(view).map(|node| (node, NodeState::new(view, node, facts))).collect();
    let ports = troubles(&states, |state| &state.ports);
    let tainted = troubles(&states, |state| &state.tainted_gpus);
    let mut gpus = addresses(view);
    gpus.extend(rules_for_all(seen));
    gpus.extend(unusable(
        &tainted,
        ("GPU", "tainted"),
        "whoever set the taint knows why: the GPU driver, or a DeviceTaintRule (`kubectl get \
         devicetaintrules`)",
    ));
    let nics = unusable(
        &ports,
        ("NIC", "down, degraded or tainted"),
        "check the cable, the switch port and, for a slow link, the slot (`kubectl dranet graph NODE \
         --path`)",
    );
    Devices { gpus, nics, owners: plugins(seen, &states) }
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
    troubles: &[String],
    (device, state): (&str, &str),
    remedy: &str,
) -> Option<DoctorFinding> {
    let named = troubles.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = match troubles.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!troubles.is_empty()).then(|| {
        let is = if troubles.len() == 1 { "is" } else { "are" };
        let message = format!("{is} {state}: {named}{more}; {remedy}");
        DoctorFinding::new(Severity::Warning, counted(troubles.len(), device), message)
    })
}

/// Nodes whose NICs a device plugin offers as well.
fn plugins(seen: &Seen, states: &BTreeMap<&str, NodeState>) -> Vec<DoctorFinding> {
    let mut found: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for node in seen.of_kind("Node") {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let Some((name, state)) = states.get_key_value(name) else { continue };
        let resources = node["status"]["capacity"].as_object().into_iter().flatten();
        let offered = resources.filter(|(_, amount)| amount.as_str().is_some_and(|it| it != "0"));
        for (resource, _) in offered {
            if can_be_nics(resource) && state.nics.all > 0 {
                found.entry(resource.clone()).or_default().insert(name);
            }
        }
    }
    found.into_iter().filter_map(|(resource, nodes)| {
        let what = format!(
            "{resource} by a device plugin, and NICs by a DRA driver; if these are the same devices, \
             two pods can get one NIC: remove them from the plugin's configuration"
        );
        DoctorFinding::on(&nodes, ("offers", "offer"), &what)
    }).collect()
}

/// `DeviceTaintRules` that select every device of the cluster (Kubernetes issue 141422).
fn rules_for_all(seen: &Seen) -> Vec<DoctorFinding> {
    seen.of_kind("DeviceTaintRule")
        .filter(|rule| {
            let selector = &rule["spec"]["deviceSelector"];
            let fields = ["driver", "pool", "device"];
            selector.is_object() && fields.iter().all(|field| selector[field].is_null())
        })
        .filter_map(rule_for_all)
        .collect()
}

/// What a rule that selects every device does; nothing if it has no effect.
fn rule_for_all(rule: &Value) -> Option<DoctorFinding> {
    let effect = match rule["spec"]["taint"]["effect"].as_str() {
        Some("NoExecute") => "so no new pod gets a device, and pods that have some are deleted",
        Some("NoSchedule") => "so no new pod gets a device",
        _ => return None,
    };
    let name = rule["metadata"]["name"].as_str().unwrap_or_default();
    let message = format!(
        "selects every device of every driver, {effect}; name a driver, pool or device in its \
         spec.deviceSelector"
    );
    let place = format!("DeviceTaintRule {name}");
    Some(DoctorFinding::new(Severity::Warning, place, message))
}

/// GPUs that cannot be found in the graph. An entry of the drivers file has a finding of its own.
fn addresses(view: &ClusterView) -> Vec<DoctorFinding> {
    let mut without: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in nodes(view) {
        let lost =
            NodeDevice::all(view, node).filter(|it| it.role.is_gpu() && it.address.is_none());
        for driver in lost.filter_map(|gpu| gpu_drivers::by_name(gpu.device.driver())) {
            if !named_by_file().contains(&driver.driver) {
                without.entry(driver.driver).or_default().insert(node);
            }
        }
    }
    without.into_iter().filter_map(|(driver, nodes)| {
        let what = format!(
            "GPUs without the attribute {}, so their distance to NICs is unknown; upgrade {driver}",
            attribute::PCI_BUS_ID
        );
        DoctorFinding::on(&nodes, ("has", "have"), &what)
    }).collect()
}
