//! NICs in pods stay published as they were.

mod month;

use super::*;
use crate::attributes::encode;
use crate::decision::decide;
use crate::judge::Given;
use crate::live;
use crate::network::Withheld;
use crate::nic::device_name;
use k8s_openapi::api::resource::v1::Device;
use std::slice;
use topology_graph::PciAddress;

/// A machine with Ethernet NICs, verbs on them, and GPUs.
const MACHINE: &str = "oke-gb200";

const BOTH: Holding = Holding { interface: true, rdma: true };

/// The machine's facts, the published devices, and the remembered NICs.
fn start() -> (Facts, Vec<Device>, Seen) {
    let facts = live::facts(MACHINE);
    let decision = decide(&facts);
    let mut seen = Seen::default();
    seen.remember(&decision.nics, &Held::new());
    (facts, decision.devices, seen)
}

fn held(devices: &[Device]) -> Held {
    devices.iter().map(|device| (device.name.clone(), BOTH)).collect()
}

/// The machine as the host sees it while pods have all of these.
fn without(facts: &Facts, held: &Held) -> Facts {
    let mut facts = facts.clone();
    let in_pod = |pci: Option<PciAddress>| {
        pci.is_some_and(|address| held.contains_key(&device_name(address)))
    };
    let Facts { snapshot, network, .. } = &mut facts;
    snapshot.rdma.retain(|rdma| !in_pod(rdma.pci));
    snapshot.netdevs.retain(|netdev| !in_pod(netdev.pci));
    let left = &snapshot.netdevs;
    network.interfaces.retain(|interface| left.iter().any(|netdev| netdev.name == interface.name));
    facts
}

#[test]
fn nics_in_pods_stay_published_unchanged() {
    let (facts, devices, seen) = start();
    let all = held(&devices);
    let singles = all.iter().map(|(name, holding)| Held::from([(name.clone(), *holding)]));
    for held in singles.chain([all.clone()]) {
        let mut now = without(&facts, &held);
        assert_ne!(decide(&now).devices, devices, "{held:?}: the host cannot see something");
        seen.complete(&mut now, &held);
        let decision = decide(&now);
        assert_eq!(decision.devices, devices, "{held:?}");
        assert_eq!(decision.topology, decide(&facts).topology, "{held:?}");
        let mut later = seen.clone();
        later.remember(&decision.nics, &held);
        assert_eq!(later, seen, "{held:?}");
    }
}

#[test]
fn changes_on_the_way_into_a_pod_are_not_published() {
    let (mut facts, devices, seen) = start();
    let interface = facts.network.interfaces.iter_mut().find(|it| it.name == "rdma0").unwrap();
    interface.mtu = Some(1500);
    interface.state = Some("down".to_owned());
    let name = "rdma0-leaves".to_owned();
    interface.name.clone_from(&name);
    facts.snapshot.netdevs.iter_mut().find(|it| it.name == "rdma0").unwrap().name = name;
    assert_ne!(decide(&facts).devices, devices);
    seen.complete(&mut facts, &held(&devices));
    assert_eq!(decide(&facts).devices, devices);
}

#[test]
fn nics_without_a_pod_are_not_completed() {
    let (facts, devices, seen) = start();
    let all = held(&devices);
    let bare = without(&facts, &all);
    let mut now = bare.clone();
    seen.complete(&mut now, &Held::new());
    assert_eq!(now.network, bare.network);
    assert_eq!(now.snapshot, bare.snapshot);
    let mut later = seen;
    later.remember(&decide(&bare).nics, &Held::new());
    let mut now = bare.clone();
    later.complete(&mut now, &all);
    assert_eq!(now.snapshot, bare.snapshot, "a NIC that vanishes while no pod has it is forgotten");
}

#[test]
fn an_interface_that_took_the_nics_name_is_left_alone() {
    let (facts, devices, seen) = start();
    let all = held(&devices);
    let mut now = without(&facts, &all);
    let other = Interface { index: 77, name: "rdma0".to_owned(), ..Interface::default() };
    now.network.interfaces.push(other.clone());
    seen.complete(&mut now, &all);
    assert_eq!(now.network.interface("rdma0"), Some(&other));
    assert!(!now.snapshot.netdevs.iter().any(|netdev| netdev.name == "rdma0"));
}

#[test]
fn a_function_that_is_gone_is_published_as_it_was() {
    let (facts, devices, seen) = start();
    let all = held(&devices);
    assert_eq!(seen.gone(&facts.snapshot, &all).count(), 0);
    let mut now = facts.clone();
    let first = &devices[0];
    now.snapshot.pci.retain(|function| device_name(function.address) != first.name);
    let mut now = without(&now, &all);
    let gone = seen.gone(&now.snapshot, &all).map(|nic| encode(&nic, &Given::default()));
    assert_eq!(gone.collect::<Vec<_>>(), slice::from_ref(first));
    assert_eq!(seen.gone(&now.snapshot, &Held::new()).count(), 0, "no pod has it");
    seen.complete(&mut now, &all);
    assert_eq!(decide(&now).devices.len(), devices.len() - 1, "the graph does not have it");
}

#[test]
fn seen_nics_survive_serialization() {
    let (_, _, seen) = start();
    let text = serde_json::to_string(&seen).unwrap();
    assert_eq!(serde_json::from_str::<Seen>(&text).unwrap(), seen);
}

/// A VLAN that pods may get, on a NIC. The VLAN without the NIC reaches nothing.
#[test]
fn a_nic_stays_with_the_host_while_a_pod_has_its_vlan() {
    let mut facts = live::facts(MACHINE);
    let lower = facts.network.interface("rdma0").unwrap().index;
    let vlan = Interface {
        index: 900,
        name: "storage".to_owned(),
        kind: Some("vlan".to_owned()),
        lower: Some(lower),
        ..Interface::default()
    };
    facts.network.interfaces.push(vlan);
    let nics = decide(&facts).nics;
    assert!(!facts.network.withheld().contains_key(&lower), "the host does not use the VLAN");
    let mut seen = Seen::default();
    seen.remember(&nics, &Held::new());
    let held = Held::from([("storage".to_owned(), Holding { interface: true, rdma: false })]);
    let mut now = facts.clone();
    now.network.interfaces.retain(|interface| interface.name != "storage");
    seen.complete(&mut now, &held);
    let reason = now.network.withheld().remove(&lower);
    assert_eq!(reason, Some(Withheld::Below("storage".to_owned())));
    // The kernel has numbered the NIC's interface again.
    let mut again = facts;
    again.network.interfaces.retain(|interface| interface.name != "storage");
    for interface in again.network.interfaces.iter_mut().filter(|it| it.index == lower) {
        interface.index = 901;
    }
    seen.complete(&mut again, &held);
    assert_eq!(again.network.withheld().remove(&901), reason);
}
