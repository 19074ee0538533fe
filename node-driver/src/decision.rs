//! From the facts of a machine to what is said of it. Pure: the same facts
//! always give the same devices and the same topology.

use crate::attributes::{self, Machine};
use crate::cloud::CloudMetadata;
use crate::filter::Filter;
use crate::health::{Health, PORT_DOWN};
use crate::network::NetworkFacts;
use crate::nic::{self, LinkType, Nic};
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use std::collections::BTreeMap;
use std::time::Instant;
use topology_graph::{Anomaly, NodeTopologySpec, Overlay, PortState, Snapshot, Topology};

/// All that is known of the machine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What its kernel tells.
    pub snapshot: Snapshot,
    /// What its network interfaces are.
    pub network: NetworkFacts,
    /// What its cloud tells.
    pub cloud: CloudMetadata,
}

/// What is published.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The NICs.
    pub devices: Vec<Device>,
    /// Of each NIC whose port's state matters: whether the port is up.
    pub ports: BTreeMap<String, bool>,
    /// The graph.
    pub topology: NodeTopologySpec,
    /// What is strange about the machine.
    pub anomalies: Vec<Anomaly>,
}

impl Decision {
    /// Leaves out the NICs that the administrator does not want.
    #[must_use]
    pub fn filtered(mut self, filter: &Filter) -> Self {
        self.devices.retain(|device| filter.keeps(device));
        self
    }

    /// Taints the NICs that must not be given away now.
    #[must_use]
    pub fn tainted(mut self, health: &Health, effect: TaintEffect, now: Instant) -> Self {
        let Some(effect) = effect.word() else { return self };
        for device in &mut self.devices {
            if health.is_tainted(&device.name, now) {
                let taint = DeviceTaint {
                    key: PORT_DOWN.to_owned(),
                    effect: effect.to_owned(),
                    ..DeviceTaint::default()
                };
                device.taints.get_or_insert_default().push(taint);
            }
        }
        self
    }
}

/// What a NIC whose port is down is tainted with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// Nothing.
    None,
    /// It is given to no new pod.
    NoSchedule,
    /// And the pods that have it are evicted.
    NoExecute,
}

impl TaintEffect {
    /// The API's word.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::NoSchedule => Some("NoSchedule"),
            Self::NoExecute => Some("NoExecute"),
        }
    }
}

/// InfiniBand NICs whose port's state is known.
fn ports(nics: &[Nic<'_>]) -> BTreeMap<String, bool> {
    let infiniband = nics.iter().filter(|nic| nic.link_type == LinkType::InfiniBand);
    let state = |nic: &Nic<'_>| {
        let states = nic.rdma?.ports.iter().filter_map(|port| port.state);
        let states: Vec<_> = states.collect();
        let is_up = states.contains(&PortState::Active);
        (!states.is_empty()).then(|| (nic.name.clone(), is_up))
    };
    infiniband.filter_map(state).collect()
}

/// Decides.
pub fn decide(facts: &Facts) -> Decision {
    let Facts { snapshot, network, cloud } = facts;
    let overlay = cloud.machine_type().and_then(Overlay::built_in);
    let (topology, anomalies) = Topology::build(snapshot, overlay.as_ref());
    let topology = topology.on_fabric(cloud.fabric().map(|fabric| fabric.as_str().to_owned()));
    let nics = nic::nics(snapshot, network);
    let devices = attributes::devices(&nics, &Machine::new(&topology, cloud, &nics));
    Decision { devices, ports: ports(&nics), topology: topology.to_spec(), anomalies }
}
