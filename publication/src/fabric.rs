//! The fabric on which the machine's NICs reach those of other machines: from the cloud's
//! metadata, otherwise the InfiniBand subnet.

use crate::attribute::Text;
use crate::cloud::CloudMetadata;
use std::collections::BTreeSet;
use topology_graph::{LinkLayer, NicRole, PortState, Snapshot, SubnetPrefix, Topology};

/// Prefix for InfiniBand subnets, so that nobody mistakes one for a cloud's group.
const SUBNET: &str = "ib-";

/// The fabric's name; `None` if nothing distinguishes it from other fabrics.
pub(crate) fn fabric(
    snapshot: &Snapshot,
    topology: &Topology,
    cloud: &CloudMetadata,
) -> Option<Text> {
    cloud
        .fabric()
        .cloned()
        .or_else(|| Text::new(&format!("{SUBNET}{}", subnet(snapshot, topology)?)))
}

/// The one subnet of the InfiniBand ports. NICs for storage, and those that manage NVLink switches,
/// are on other subnets and do not count. `None` if the ports are on several subnets,
/// because then it is unknown which one jobs use, and if an active port has the default
/// prefix. A port that is down keeps the prefix that it was given.
fn subnet(snapshot: &Snapshot, topology: &Topology) -> Option<SubnetPrefix> {
    let ports = snapshot
        .rdma
        .iter()
        .filter(|device| {
            let role = device.pci.and_then(|address| topology.nic_role(address));
            role.is_none_or(|role| role == NicRole::Compute)
        })
        .flat_map(|device| &device.ports);
    let subnets: BTreeSet<_> = ports
        .filter(|port| {
            port.link_layer == Some(LinkLayer::InfiniBand)
                && (port.subnet.is_some() || port.state == Some(PortState::Active))
        })
        .map(|port| port.subnet)
        .collect();
    subnets.first().copied().filter(|_| subnets.len() == 1).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::names::attribute;
    use std::fmt::Write;
    use topology_graph::{HostRoot, fixture};

    /// One InfiniBand device per entry: state and first GID of its port.
    fn machine(ports: &[(&str, &str)]) -> Snapshot {
        let mut text = String::from("/sys/devices/system/node/online = 0\n");
        for (index, (state, gid)) in ports.iter().enumerate() {
            writeln!(text, "[sys/class/infiniband/mlx5_{index}/ports/1]").unwrap();
            writeln!(text, "link_layer = InfiniBand\nstate = {state}\ngids/0 = {gid}").unwrap();
        }
        let root = tempfile::tempdir().unwrap();
        fixture::plant(&text, root.path()).unwrap();
        topology_graph::read(&HostRoot::at(root.path())).unwrap()
    }

    const EAST: &str = "fec0:0000:0000:0001:506b:4b03:00a1:b2c3";
    const WEST: &str = "fec0:0000:0000:0002:506b:4b03:00a1:b2c3";
    const DEFAULT: &str = "fe80:0000:0000:0000:506b:4b03:00a1:b2c3";

    #[test]
    fn the_subnet_is_the_fabric_if_all_ports_share_it() {
        for (ports, expected) in [
            (&[("4: ACTIVE", EAST), ("4: ACTIVE", EAST)][..], Some("ib-fec0000000000001")),
            (&[("4: ACTIVE", EAST), ("1: DOWN", EAST)], Some("ib-fec0000000000001")),
            (&[("4: ACTIVE", EAST), ("1: DOWN", DEFAULT)], Some("ib-fec0000000000001")),
            (&[("1: DOWN", EAST)], Some("ib-fec0000000000001")),
            (&[("4: ACTIVE", EAST), ("4: ACTIVE", WEST)], None),
            (&[("4: ACTIVE", EAST), ("4: ACTIVE", DEFAULT)], None),
            (&[("4: ACTIVE", DEFAULT)], None),
            (&[], None),
        ] {
            let machine = machine(ports);
            let (topology, _) = Topology::build(&machine, None);
            let found = fabric(&machine, &topology, &CloudMetadata::default());
            assert_eq!(found.as_ref().map(Text::as_str), expected, "{ports:?}");
        }
    }

    #[test]
    fn the_clouds_group_takes_precedence_over_the_subnet() {
        let group = Text::new("group-1").unwrap();
        let cloud = [(attribute::AZURE_PLACEMENT_GROUP.to_owned(), group.clone())];
        let machine = machine(&[("4: ACTIVE", EAST)]);
        let (topology, _) = Topology::build(&machine, None);
        let found = fabric(&machine, &topology, &cloud.into_iter().collect());
        assert_eq!(found, Some(group));
    }

    /// The managers of the NVLink switches of a DGX B200 are on a subnet of their own.
    #[test]
    fn only_compute_nics_count() {
        let root = tempfile::tempdir().unwrap();
        fixture::plant(fixture::machine("dgx-b200").unwrap(), root.path()).unwrap();
        let mut machine = topology_graph::read(&HostRoot::at(root.path())).unwrap();
        let (topology, _) = Topology::build(&machine, None);
        for device in &mut machine.rdma {
            let role = device.pci.and_then(|address| topology.nic_role(address));
            let gid = if role == Some(NicRole::Compute) { EAST } else { WEST };
            for port in &mut device.ports {
                port.subnet = SubnetPrefix::of_gid(gid);
            }
        }
        let found = fabric(&machine, &topology, &CloudMetadata::default());
        assert_eq!(found.as_ref().map(Text::as_str), Some("ib-fec0000000000001"));
    }
}
