//! Looks at planted machines, without a driver.

use super::*;
use publication::decision::VENDOR_DRIVER_TAINT;
use publication::filter;
use publication::health::Problem;
use publication::held::Holding;
use publication::live;
use std::time::Duration;

const NIC: &str = "pci-0101-00-00-0";

pub(crate) fn settings() -> Settings {
    Settings {
        filter: filter::DEFAULT.parse().unwrap(),
        nic_role: Filter::default(),
        nic_rail: Filter::default(),
        sharing: SharingArgs::default(),
        taints: TaintArgs::default(),
        locked_memory: Some(true),
    }
}

fn look(now: Instant) -> Look {
    Look {
        machine: live::facts("aks-gb300"),
        namespaces: None,
        kernel: KernelFacts::default(),
        held: Held::new(),
        places: BTreeMap::new(),
        given: None,
        bind_nics: BindNics::Named,
        unresponsive: BTreeSet::new(),
        port_errors: BTreeMap::new(),
        link_errors: BTreeMap::new(),
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
    next.held = Held::from([(NIC.to_owned(), Holding::default())]);
    let unknown = decide(next.clone(), &settings(), &History::default());
    assert!(unknown.decision.devices.iter().all(|device| device.name != NIC));
    let known = decide(next, &settings(), &first.history);
    assert_eq!(taints(&known.decision, NIC), ["dranet.io/gone"]);
}

/// The vendor's driver has pods evicted from NICs that also have problems.
#[test]
fn patches_keep_what_others_have_written() {
    let decision = decide(look(Instant::now()), &settings(), &History::default()).decision;
    let names = BTreeSet::from([NIC.to_owned()]);
    let problems = Problems::from([(NIC.to_owned(), BTreeSet::from([Problem::Unresponsive]))]);
    let effects = TaintArgs::default();
    let one = decision.clone().tainted(&problems, effects).evicting(&names);
    let other = decision.evicting(&names).tainted(&problems, effects);
    assert_eq!(taints(&one, NIC), ["dranet.io/unresponsive", VENDOR_DRIVER_TAINT]);
    assert_eq!(one.devices, other.devices);
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
