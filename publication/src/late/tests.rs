//! What a node publishes that binds NICs late.

use super::*;
use crate::decision::{Decision, decide};
use crate::health::Problem;
use crate::health::taint::{TaintArgs, TaintEffect};
use crate::held::Holding;
use crate::judge::{BindNics, Rules};
use crate::live::facts;
use crate::machine::{Machine, Usage};
use crate::rails::KnownRails;
use cluster_model::names::attribute::{self, dranet};
use cluster_model::published_device::is_place;
use std::collections::BTreeSet;

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn held(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(place, nic)| ((*place).to_owned(), (*nic).to_owned())).collect()
}

const FIRST: &str = "pci-0101-00-00-0";

/// A port that is down has pods evicted.
fn rules() -> Rules {
    let taints = TaintArgs { port_down_taint: TaintEffect::NoExecute, ..TaintArgs::default() };
    Rules { bind_nics: BindNics::Late, taints: Some(taints), ..Rules::default() }
}

/// The machine while the port of one NIC is down, and pods have some, by their names or by places.
fn bound(broken: Option<&str>, taken: &[&str], places: &[(&str, &str)]) -> Decision {
    let mut machine = Machine::read(&facts("aks-gb300"), &rules(), &KnownRails::default());
    let names = taken.iter().map(|name| ((*name).to_owned(), Holding::default()));
    machine.settle(&Usage { held: names.collect(), ..Usage::default() }, &rules());
    for nic in machine.nics.iter_mut().filter(|nic| Some(nic.name.as_str()) == broken) {
        nic.now.problems = BTreeSet::from([Problem::PortDown]);
    }
    machine.decide(&rules(), &held(places))
}

/// With eight NICs or fewer, a claim for all of them is a short search.
#[test]
fn many_places_say_their_numbers() {
    for (count, is_numbered) in [(8, false), (9, true), (32, true)] {
        let decision = bound(None, &[], &[]);
        let first = decision.late[0].clone();
        let nic = decision.nics.into_iter().find(|nic| nic.address() == Some(first.address));
        let nics = vec![(nic.unwrap(), Given { late: true, ..Given::default() }); count];
        let numbers = places(&nics, &BTreeMap::new()).into_iter().map(|place| {
            let attributes = place.attributes.unwrap();
            attributes.get(attribute::PLACE).map(|number| number.int.unwrap())
        });
        let expected = (0..).take(count).map(|number| Some(number).filter(|_| is_numbered));
        assert!(numbers.eq(expected), "{count}");
    }
}

#[test]
fn places_stand_for_the_compute_nics() {
    let before = decide(&facts("aks-gb300"));
    let named = names(&before.devices).join(" ");
    let decision = bound(None, &[], &[]);
    assert_eq!(decision.late.len(), 4, "{named}");
    assert_eq!(decision.devices.len(), before.devices.len(), "one place for each NIC");
    let places: Vec<_> = decision.devices.iter().filter(|it| is_place(&it.name)).collect();
    assert_eq!(
        places.iter().map(|it| &it.name).collect::<Vec<_>>(),
        ["late-0", "late-1", "late-2", "late-3"]
    );
    for place in places {
        let attributes = place.attributes.as_ref().unwrap();
        assert_eq!(attributes[attribute::LATE_BINDING].bool, Some(true));
        assert_eq!(attributes[dranet::RDMA].bool, Some(true));
        assert_eq!(attributes[attribute::ROLE].string.as_deref(), Some("compute"));
        assert!(
            attributes.contains_key(attribute::SHAPE)
                && attributes.contains_key(attribute::AZURE_VM_SIZE)
        );
        // Nothing by which a claim could want a certain NIC, or join it with a GPU.
        let of_one = |name: &&String| {
            [attribute::PCI_BUS_ID, attribute::PCIE_ROOT, attribute::NUMA_NODE, attribute::RAIL]
                .contains(&name.as_str())
                || name.starts_with("gpu.")
                || [dranet::NUMA_NODE, dranet::RDMA_DEVICE, dranet::PCI_ADDRESS]
                    .contains(&name.as_str())
        };
        assert_eq!(attributes.keys().find(of_one), None);
    }
    assert!(!names(&decision.devices).contains(&FIRST), "{named}");
}

#[test]
fn a_held_nic_keeps_its_place_and_a_broken_one_has_none() {
    let nics = decide(&facts("aks-gb300")).nics;
    let (broken, named) = (nics[0].name.as_str(), nics[1].name.as_str());
    let free = bound(Some(broken), &[], &[]);
    assert_eq!(names(&free.devices), ["late-0", "late-1", "late-2"]);
    assert_eq!(free.late.iter().filter(|nic| nic.is_usable).count(), 3);
    assert!(free.devices.iter().all(|place| place.taints.is_none()));

    let used = bound(Some(broken), &[broken], &[("late-2", broken)]);
    assert_eq!(names(&used.devices), ["late-0", "late-1", "late-2", "late-3"]);
    let tainted: Vec<_> = used.devices.iter().filter(|it| it.taints.is_some()).collect();
    assert_eq!(names(&[tainted[0].clone()]), ["late-2"]);
    let taints = tainted[0].taints.as_ref().unwrap().iter();
    let taints: Vec<_> = taints.map(|it| format!("{}:{}", it.key, it.effect)).collect();
    assert_eq!(taints, ["dranet.io/port-down:NoExecute"], "its pod is evicted as from the NIC");
    assert_eq!(tainted.len(), 1);

    // Before the node was set to late binding, a claim named a NIC.
    let left = bound(Some(broken), &[named], &[]);
    assert_eq!(names(&left.devices), ["late-0", "late-1"]);
}

#[test]
fn names_of_places() {
    assert!(is_place("late-0") && is_place("late-31"));
    assert!(!is_place("late-") && !is_place("late-x") && !is_place(FIRST) && !is_place("late"));
}
