//! The report of `node-driver inspect`, as text and as JSON.

use crate::decide::look::{Look, Outcome};
use k8s_openapi::api::resource::v1::Device;
use publication::decision::Decision;
use publication::health::Problem;
use publication::judge::{BindNics, WithheldNic};
use publication::nic::NicState;
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
    #[serde(skip)]
    nics: Vec<NicState>,
}

impl Report {
    /// What follows from a look. `has_network` says whether it asked the machine's kernel.
    pub(super) fn new(outcome: Outcome, look: &Look, has_network: bool) -> Self {
        let Decision { devices, nics, late, withheld, anomalies, .. } = outcome.decision;
        let is_late = outcome.binding.now == BindNics::Late;
        let problems =
            outcome.history.problems.into_iter().map(|(device, problems)| {
                (device, problems.into_iter().map(Problem::word).collect())
            });
        Self {
            has_network,
            published: devices,
            behind_places: is_late.then(|| late.into_iter().map(|nic| nic.device).collect()),
            topology_manager_policy: look.topology_policy.map(|policy| policy.to_string()),
            withheld,
            problems: problems.collect(),
            held: look.usage.held.keys().cloned().collect(),
            anomalies,
            nics,
        }
    }

    /// What a person wants to know of a published NIC; the name of a place.
    fn line(&self, device: &Device) -> String {
        let Some(nic) = self.nics.iter().find(|nic| nic.name == device.name) else {
            return device.name.clone();
        };
        let mut words = vec![nic.name.clone()];
        words.extend(nic.own_interface().map(|interface| interface.name.clone()));
        words.extend(nic.rdma.as_ref().map(|rdma| rdma.name.clone()));
        words.extend(nic.rate_gbps().map(|rate| format!("{rate} Gbit/s")));
        words.extend(nic.rail.map(|rail| format!("rail {rail}")));
        words.extend(nic.numa.map(|node| format!("NUMA node {}", node.0)));
        words.extend(nic.physical_function().map(|_| "virtual function".to_owned()));
        words.extend(nic.now.holding.map(|_| "a claim has it".to_owned()));
        words.extend(nic.now.problems.iter().map(ToString::to_string));
        words.join(", ")
    }
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
