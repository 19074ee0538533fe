//! The report of `node-driver inspect`, as text and as JSON.

use cluster_model::names::attribute::{self, dranet};
use cluster_model::topology_policy::TopologyPolicy;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use publication::decision::Decision;
use publication::health::{Problem, Problems};
use publication::held::Held;
use publication::late::LateNic;
use publication::withheld::WithheldNic;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology_graph::Anomaly;

/// What a node publishes and withholds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Whether the machine's kernel was asked for its interfaces.
    has_network: bool,
    /// The devices, as in a slice.
    published: Vec<Device>,
    /// Where NICs are bound late: those that the places stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind_places: Option<Vec<Device>>,
    /// The policy of the kubelet's topology manager, if its file was named and could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_manager_policy: Option<String>,
    withheld: Vec<WithheldNic>,
    /// Problems by device; the driver's flags decide which of them are taints.
    problems: BTreeMap<String, BTreeSet<&'static str>>,
    /// Devices that claims on this node have.
    held: BTreeSet<String>,
    anomalies: Vec<Anomaly>,
}

impl Report {
    pub(super) fn new(
        decision: Decision,
        problems: Problems,
        held: &Held,
        has_network: bool,
    ) -> Self {
        let words = problems
            .into_iter()
            .map(|(device, problems)| (device, problems.into_iter().map(Problem::word).collect()));
        let Decision { devices, withheld, anomalies, .. } = decision;
        Self {
            has_network,
            published: devices,
            behind_places: None,
            topology_manager_policy: None,
            withheld,
            problems: words.collect(),
            held: held.keys().cloned().collect(),
            anomalies,
        }
    }

    /// With the policy of the kubelet's topology manager, if that is known.
    pub(super) fn with_policy(mut self, policy: Option<TopologyPolicy>) -> Self {
        self.topology_manager_policy = policy.map(|policy| policy.to_string());
        self
    }

    /// The report of a node that binds NICs late: these are the NICs behind its places.
    pub(super) fn with_late(mut self, nics: Vec<LateNic>) -> Self {
        self.behind_places = Some(nics.into_iter().map(|nic| nic.device).collect());
        self
    }

    /// What a person wants to know of a published NIC.
    fn line(&self, device: &Device) -> String {
        let value = |name: &str| device.attributes.as_ref()?.get(name);
        let text = |name: &str| value(name).and_then(shown);
        let mut words = vec![device.name.clone()];
        words.extend(text(dranet::IF_NAME));
        words.extend(text(dranet::RDMA_DEVICE));
        words.extend(text(attribute::RATE_GBPS).map(|rate| format!("{rate} Gbit/s")));
        words.extend(text(attribute::RAIL).map(|rail| format!("rail {rail}")));
        words.extend(text(attribute::NUMA_NODE).map(|node| format!("NUMA node {node}")));
        let is_function = value(dranet::IS_SRIOV_VF).is_some_and(|it| it.bool == Some(true));
        words.extend(is_function.then(|| "virtual function".to_owned()));
        words.extend(self.held.contains(&device.name).then(|| "a claim has it".to_owned()));
        words
            .extend(self.problems.get(&device.name).into_iter().flatten().map(ToString::to_string));
        words.join(", ")
    }
}

/// An attribute's value as text.
fn shown(attribute: &DeviceAttribute) -> Option<String> {
    let number = attribute.int.map(|number| number.to_string());
    attribute.string.clone().or(number).or_else(|| attribute.bool.map(|it| it.to_string()))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { has_network, published, withheld, anomalies, .. } = self;
        writeln!(f, "Published: {}", published.len())?;
        for device in published {
            writeln!(f, "  {}", self.line(device))?;
        }
        if let Some(nics) = &self.behind_places {
            writeln!(f, "NICs behind the places late-…: {}", nics.len())?;
            for device in nics {
                writeln!(f, "  {}", self.line(device))?;
            }
        }
        if let Some(policy) = &self.topology_manager_policy {
            writeln!(f, "Topology manager policy of the kubelet: {policy}")?;
        }
        writeln!(f, "Withheld: {}", withheld.len())?;
        for WithheldNic { name, interface, reason } in withheld {
            let interface = interface.as_ref().map(|name| format!(" ({name})"));
            writeln!(f, "  {name}{}: {reason}", interface.unwrap_or_default())?;
        }
        if !anomalies.is_empty() {
            writeln!(f, "Inconsistent or missing facts: {}", anomalies.len())?;
            for anomaly in anomalies {
                writeln!(f, "  {anomaly}")?;
            }
        }
        if !has_network {
            writeln!(
                f,
                "The root is not this machine, so its interfaces and routes are unknown: which NICs \
                 the host itself uses is not taken into account."
            )?;
        }
        Ok(())
    }
}
