//! Looks at planted machines, without a driver.

use super::*;
use publication::filter;
use publication::health::taint::TaintArgs;
use publication::held::{Held, Holding};
use publication::history::Seen;
use publication::judge::VENDOR_DRIVER_TAINT;
use publication::live;
use std::collections::BTreeSet;
use std::time::Duration;

const NIC: &str = "pci-0101-00-00-0";

pub(crate) fn settings() -> Settings {
    let rules = Rules {
        filter: filter::DEFAULT.parse().unwrap(),
        taints: Some(TaintArgs::default()),
        one_function_per_port: true,
        something_to_give: true,
        ..Rules::default()
    };
    Settings { rules, locked_memory: Some(true) }
}

fn look(now: Instant) -> Look {
    Look {
        machine: live::facts("aks-gb300"),
        usage: Usage::default(),
        namespaces: None,
        kernel: KernelFacts::default(),
        given: None,
        bind_nics: BindNics::Named,
        topology_policy: None,
        setup: SetUp::default(),
        now,
    }
}

fn taints(decision: &Decision, name: &str) -> Vec<String> {
    let device = decision.devices.iter().find(|device| device.name == name).unwrap();
    device.taints.iter().flatten().map(|taint| taint.key.clone()).collect()
}

/// A look changes nothing by itself, so it can be repeated.
#[test]
fn the_same_look_gives_the_same_outcome() {
    let (now, history) = (Instant::now(), History::default());
    let [one, other] = [(); 2].map(|()| decide(look(now), &settings(), &history));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!(history.seen == Seen::default() && history.problems.is_empty());
    assert_eq!(one.decision.devices.len(), 4);
}

/// The NIC is gone from the next look, and the history of the first knows it.
#[test]
fn what_pods_have_comes_from_the_history() {
    let now = Instant::now();
    let first = decide(look(now), &settings(), &History::default());
    let mut next = look(now + Duration::from_mins(1));
    let address = "0101:00:00.0".parse().unwrap();
    next.machine.snapshot.pci.retain(|function| function.address != address);
    next.machine.snapshot.rdma.retain(|device| device.pci != Some(address));
    next.usage.held = Held::from([(NIC.to_owned(), Holding::default())]);
    let unknown = decide(next.clone(), &settings(), &History::default());
    assert!(unknown.decision.devices.iter().all(|device| device.name != NIC));
    let known = decide(next, &settings(), &first.history);
    assert_eq!(taints(&known.decision, NIC), ["dranet.io/gone"]);
}

/// The vendor's driver has pods evicted from NICs that also have problems.
#[test]
fn a_nic_has_all_of_its_taints() {
    let mut look = look(Instant::now());
    look.usage.unresponsive = BTreeSet::from(["mlx5_0".to_owned()]);
    look.setup.evicted = BTreeSet::from([NIC.to_owned()]);
    let outcome = decide(look, &settings(), &History::default());
    assert_eq!(taints(&outcome.decision, NIC), ["dranet.io/unresponsive", VENDOR_DRIVER_TAINT]);
}

#[test]
fn the_rdma_namespace_mode_is_published_only_with_rdma_devices() {
    let mode = |namespaces, has_rdma| {
        let mut look = Look { namespaces, ..look(Instant::now()) };
        look.machine.snapshot.rdma.retain(|_| has_rdma);
        let outcome = decide(look, &settings(), &History::default());
        outcome.decision.topology.rdma_namespace_mode
    };
    assert_eq!(mode(Some(NetnsMode::Exclusive), true).as_deref(), Some("exclusive"));
    assert_eq!(mode(Some(NetnsMode::Shared), true).as_deref(), Some("shared"));
    assert_eq!(mode(None, true), None, "a recorded machine has no kernel to ask");
    assert_eq!(mode(Some(NetnsMode::Shared), false), None);
}

/// Until the vendor's container has said that it is loaded, its NICs are not published.
#[test]
fn nics_of_an_expected_driver_are_withheld() {
    let mut look = look(Instant::now());
    look.setup.withheld = BTreeSet::from([NIC.to_owned()]);
    let outcome = decide(look, &settings(), &History::default());
    let withheld: Vec<_> = outcome.decision.withheld.iter().map(|nic| nic.reason.word()).collect();
    assert_eq!(withheld, ["vendor-driver"]);
}
