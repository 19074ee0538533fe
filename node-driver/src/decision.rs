//! From the facts of a machine to what is said of it. Pure: the same facts
//! always give the same devices and the same topology.

use crate::attributes::{self, Machine};
use crate::cloud::CloudMetadata;
use crate::network::NetworkFacts;
use crate::nic;
use k8s_openapi::api::resource::v1::Device;
use topology_graph::{Anomaly, NodeTopologySpec, Overlay, Snapshot, Topology};

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
    /// The graph.
    pub topology: NodeTopologySpec,
    /// What is strange about the machine.
    pub anomalies: Vec<Anomaly>,
}

/// Decides.
pub fn decide(facts: &Facts) -> Decision {
    let Facts { snapshot, network, cloud } = facts;
    let overlay = cloud.machine_type().and_then(Overlay::built_in);
    let (topology, anomalies) = Topology::build(snapshot, overlay.as_ref());
    let nics = nic::nics(snapshot, network);
    let devices = attributes::devices(&nics, &Machine::new(&topology, cloud, &nics));
    Decision { devices, topology: topology.to_spec(), anomalies }
}
