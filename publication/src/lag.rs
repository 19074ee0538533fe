//! Bonds of the ports of one adapter that have one RDMA device (`RoCE` LAG). Such a bond is one NIC.
//!
//! When both interfaces of a two-port adapter, and only they, join a bond, mlx5 replaces their RDMA
//! devices by one, `mlx5_bond_0`, below the first function (torvalds/linux,
//! `drivers/net/ethernet/mellanox/mlx5/core/lag/lag.c`, commit 7907f23adc18). The second function
//! then has none (scitix/sichek#112). The kernel moves no bond to another network namespace
//! (`bond_setup` in `drivers/net/bonding/bond_main.c`).

use crate::network::{Interface, NetworkFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use topology_graph::{PciAddress, Snapshot};

/// Kinds of interfaces that join ports.
const KINDS: [&str; 2] = ["bond", "team"];

/// A bond that is one NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// The bond's interface.
    pub bond: Interface,
    /// The function with the RDMA device, by which the NIC is named.
    pub first: PciAddress,
    /// All functions whose ports it joins, by address.
    pub functions: BTreeSet<PciAddress>,
}

/// The bonds of a machine that are NICs.
pub(crate) fn lags(snapshot: &Snapshot, network: &NetworkFacts) -> Vec<Lag> {
    network
        .interfaces
        .iter()
        .filter(|it| it.kind.as_deref().is_some_and(|kind| KINDS.contains(&kind)))
        .filter_map(|bond| lag(bond, snapshot, network))
        .collect()
}

fn lag(bond: &Interface, snapshot: &Snapshot, network: &NetworkFacts) -> Option<Lag> {
    let members = network.interfaces.iter().filter(|it| it.master == Some(bond.index));
    // One that is no function of the adapter makes it an ordinary bond.
    let functions: BTreeSet<PciAddress> = members
        .map(|member| {
            let netdev = snapshot.netdevs.iter().find(|netdev| netdev.name == member.name)?;
            netdev.pci.filter(|_| netdev.part.is_none())
        })
        .collect::<Option<_>>()?;
    let adapter = functions.first()?.slot();
    let with_rdma: Vec<_> =
        functions.iter().filter(|it| snapshot.rdma_device(**it).is_some()).collect();
    let [first] = with_rdma[..] else { return None };
    let first = *first;
    let is_lag = functions.len() > 1 && functions.iter().all(|it| it.slot() == adapter);
    is_lag.then(|| Lag { bond: bond.clone(), first, functions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology_graph::{HostRoot, Netdev, RdmaDevice, fixture};

    /// A machine without devices.
    fn nothing() -> Snapshot {
        let root = tempfile::tempdir().unwrap();
        fixture::plant("/sys/devices/system/node/online = 0\n", root.path()).unwrap();
        topology_graph::read(&HostRoot::at(root.path())).unwrap()
    }

    fn rdma_device(name: String, pci: Option<PciAddress>) -> RdmaDevice {
        RdmaDevice {
            name,
            pci,
            part: None,
            node_guid: None,
            sys_image_guid: None,
            ports: vec![],
            uverbs: vec![],
            umad: vec![],
            issm: vec![],
        }
    }

    /// Members `NAME ADDRESS [rdma]` of a bond.
    fn found(members: &[&str], kind: &str) -> Option<(String, usize)> {
        let mut snapshot = nothing();
        let bond = Interface {
            index: 9,
            name: "bond0".into(),
            kind: Some(kind.into()),
            ..Interface::default()
        };
        let mut network = NetworkFacts { interfaces: vec![bond], ..NetworkFacts::default() };
        for (index, member) in (2..).zip(members) {
            let words: Vec<_> = member.split(' ').collect();
            let (name, pci) = (words[0].to_owned(), words[1].parse().ok());
            snapshot.netdevs.push(Netdev { name: name.clone(), pci, part: None });
            if words.get(2).is_some() {
                snapshot.rdma.push(rdma_device(format!("mlx5_bond_{index}"), pci));
            }
            let member = Interface { index, name, master: Some(9), ..Interface::default() };
            network.interfaces.push(member);
        }
        let lags = lags(&snapshot, &network);
        lags.first().map(|lag| (lag.first.to_string(), lag.functions.len()))
    }

    #[test]
    fn a_bond_of_one_adapter_with_one_rdma_device_is_a_nic() {
        let both = ["p0 0000:99:00.0 rdma", "p1 0000:99:00.1"];
        let one = Some(("0000:99:00.0".to_owned(), 2));
        assert_eq!(found(&both, "bond"), one);
        assert_eq!(found(&both, "team"), one);
        assert_eq!(found(&both, "bridge"), None);
        let second = found(&["p0 0000:99:00.0", "p1 0000:99:00.1 rdma"], "bond");
        assert_eq!(second, Some(("0000:99:00.1".to_owned(), 2)));
        for other in [
            &["p0 0000:99:00.0 rdma"][..],
            &["p0 0000:99:00.0 rdma", "p1 0000:99:00.1 rdma"],
            &["p0 0000:99:00.0", "p1 0000:99:00.1"],
            &["p0 0000:99:00.0 rdma", "p1 0000:9a:00.0"],
            &["p0 0000:99:00.0 rdma", "p1 0000:99:00.1", "veth0 none"],
            &[],
        ] {
            assert_eq!(found(other, "bond"), None, "{other:?}");
        }
    }
}
