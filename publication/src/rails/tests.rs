use super::*;
use crate::decision::{Decision, decide_with};
use crate::judge::Rules;
use crate::live;
use crate::machine::{Facts, Machine};
use crate::nic::device_name;
use cluster_model::names::attribute;
use k8s_openapi::api::resource::v1::Device;

/// The machine with eight NICs, a file with these lines, and an expression.
fn decided(file: Option<&[(&str, u32)]>, expression: &str) -> Decision {
    let lines = file.map(|lines| lines.iter().map(|(nic, rail)| ((*nic).to_owned(), *rail)));
    let rails = lines.map(|lines| RailsFile { rails: Ok(lines.collect()) });
    with(&Facts { rails, ..live::facts("aks-mi300x") }, expression)
}

fn with(facts: &Facts, expression: &str) -> Decision {
    decide_with(facts, &Rules { nic_rail: expression.parse().unwrap(), ..Rules::default() })
}

/// The published rails, in order of PCI addresses.
fn published(decision: &Decision) -> Vec<Option<i64>> {
    let mut devices: Vec<&Device> = decision.devices.iter().collect();
    devices.sort_by_key(|device| &device.name);
    let value = |device: &&Device, name| device.attributes.as_ref()?.get(name).cloned();
    let is_compute = |device: &&Device| {
        value(device, attribute::ROLE).and_then(|it| it.string).as_deref() == Some("compute")
    };
    let compute = devices.iter().filter(|device| is_compute(device));
    compute.map(|device| value(device, attribute::RAIL)?.int).collect()
}

/// Rail and reason of each NIC in the graph, in order of PCI addresses.
fn shown(decision: &Decision) -> Vec<(Option<u32>, &str)> {
    let nics = decision.topology.nics.iter().filter(|nic| nic.rail_reason.is_some());
    nics.map(|nic| (nic.rail, nic.rail_reason.as_deref().unwrap_or_default())).collect()
}

/// Status, reason and text of the condition.
fn condition(decision: &Decision) -> Option<(bool, &str, String)> {
    let condition = decision.host.iter().find(|it| it.kind == APPLIED)?;
    Some((condition.holds, condition.reason, condition.entries.join("; ")))
}

fn counted() -> Vec<Option<i64>> {
    (0..8).map(Some).collect()
}

/// RDMA devices and PCI addresses of the machine, in order of the latter.
fn names() -> Vec<(String, String)> {
    let facts = live::facts("aks-mi300x");
    let devices = facts.snapshot.rdma.iter();
    let mut names: Vec<_> =
        devices.filter_map(|rdma| Some((rdma.pci?.to_string(), rdma.name.clone()))).collect();
    names.sort();
    names.into_iter().map(|(address, rdma)| (rdma, address)).collect()
}

#[test]
fn without_a_source_nics_are_counted() {
    let decision = decided(None, "");
    assert_eq!(published(&decision), counted());
    assert_eq!(shown(&decision)[3], (Some(3), ORDER));
    assert_eq!(condition(&decision), None);
}

#[test]
fn the_nodes_file_wins() {
    let names = names();
    // Cabled the other way round; one NIC by its address.
    let mut lines: Vec<_> = names.iter().map(|(rdma, _)| rdma.as_str()).zip((0..8).rev()).collect();
    lines[2].0 = &names[2].1;
    lines.push(("mlx5_77", 3));
    let decision = decided(Some(&lines), "1");
    assert_eq!(published(&decision), counted().into_iter().rev().collect::<Vec<_>>());
    assert_eq!(shown(&decision)[2], (Some(5), "the node's file `rails` says so"));
    assert_eq!(condition(&decision), Some((true, "Applied", String::new())));
}

#[test]
fn the_expression_numbers_nics_of_nodes_without_a_file() {
    let expression = r#"[7, 6, 5, 4, 3, 2, 1, 0][attributes["dranet.io/rail"].IntValue]"#;
    let decision = decided(None, expression);
    assert_eq!(published(&decision), counted().into_iter().rev().collect::<Vec<_>>());
    assert_eq!(shown(&decision)[0], (Some(7), "--nic-rail of node-driver says so"));
    // A file about other NICs says nothing.
    let decision = decided(Some(&[("mlx5_77", 3)]), expression);
    assert_eq!(published(&decision)[0], Some(7));
    assert_eq!(condition(&decision), Some((true, "Applied", String::new())));
}

#[test]
fn a_nic_that_the_source_leaves_out_has_no_rail() {
    let names = names();
    let lines: Vec<_> = names.iter().map(|(rdma, _)| rdma.as_str()).zip(0..7).collect();
    let decision = decided(Some(&lines), "");
    assert_eq!(published(&decision)[6..], [Some(6), None]);
    assert_eq!(shown(&decision)[7], (None, "the node's file `rails` has no rail for it"));
    let last = &names[7].0;
    let text = format!("{last}: the node's file `rails` has no rail for it");
    assert_eq!(condition(&decision), Some((false, "Incomplete", text)));
    // Its port is told apart from others all the same.
    let device = decision
        .devices
        .iter()
        .find(|device| device.name == device_name(names[7].1.parse().unwrap()));
    let attributes = device.and_then(|device| device.attributes.as_ref()).unwrap();
    assert_eq!(attributes[attribute::PORT].string.as_ref(), Some(&names[7].1));
}

#[test]
fn a_source_that_contradicts_itself_is_not_used() {
    let names = names();
    let (first, second) = (names[0].0.as_str(), names[1].0.as_str());
    let decision = decided(Some(&[(first, 2), (second, 2)]), "");
    assert_eq!(published(&decision), counted());
    let why =
        format!("the node's file `rails` is not used: it has rail 2 for both {first} and {second}");
    assert_eq!(shown(&decision)[0], (Some(0), format!("{ORDER}; {why}").as_str()));
    assert_eq!(condition(&decision), Some((false, "Ambiguous", why)));

    let decision = decided(Some(&[(first, 2), (&names[0].1, 3)]), "");
    let why = format!(
        "the node's file `rails` is not used: it has several rails for {first}, by several names"
    );
    assert_eq!(
        (published(&decision), condition(&decision)),
        (counted(), Some((false, "Contradictory", why)))
    );

    let decision = decided(None, "3");
    let why = format!(
        "--nic-rail of node-driver is not used: it has rail 3 for both {first} and {second}"
    );
    assert_eq!(
        (published(&decision), condition(&decision)),
        (counted(), Some((false, "Ambiguous", why)))
    );

    let rails = Some(RailsFile { rails: Err("line 1 must be …".to_owned()) });
    let decision = with(&Facts { rails, ..live::facts("aks-mi300x") }, "");
    let why = "the node's file `rails` is not used: line 1 must be …".to_owned();
    assert_eq!(
        (published(&decision), condition(&decision)),
        (counted(), Some((false, "Invalid", why)))
    );
}

#[test]
fn a_source_without_any_nic_is_reported() {
    let decision = decided(Some(&[("mlx5_77", 3)]), r#""none""#);
    assert_eq!(published(&decision), counted());
    let text = "no source has a rail for a compute NIC".to_owned();
    assert_eq!(condition(&decision), Some((false, "Unused", text)));
}

/// A pod has the first NIC, which was unplugged, and the file gives its rail to another one.
#[test]
fn a_rail_is_not_given_twice_while_a_pod_has_it() {
    let (names, mut facts) = (names(), live::facts("aks-mi300x"));
    let decision = with(&facts, "");
    let address = names[0].1.parse().unwrap();
    let gone = decision.nics.iter().find(|nic| nic.address() == Some(address)).unwrap().clone();
    assert_eq!(gone.rail, Some(0));
    facts.snapshot.pci.retain(|function| function.address != address);
    facts.snapshot.rdma.retain(|rdma| rdma.pci != Some(address));
    let lines = names[1..].iter().map(|(rdma, _)| rdma.clone()).zip(0..);
    facts.rails = Some(RailsFile { rails: Ok(lines.collect()) });
    let look = |gone| Machine::with_gone(&facts, &Rules::default(), &KnownRails::default(), gone);
    let rails = |machine: &Machine| {
        let nics = machine.nics.iter().filter(|nic| nic.is_compute());
        let mut rails: Vec<_> = nics.map(|nic| (nic.address(), nic.rail)).collect();
        rails.sort();
        rails.into_iter().map(|(_, rail)| rail).collect::<Vec<_>>()
    };
    let machine = look(vec![gone]);
    let six = (1..7).map(Some);
    let expected: Vec<_> = [Some(0), None].into_iter().chain(six).collect();
    assert_eq!(rails(&machine), expected);
    let (second, gone) = (&names[1].0, &names[0].0);
    let why = format!("{second}: its rail 0 is that of {gone}, which is gone and in a pod");
    assert_eq!(machine.host[0].entries, [why]);
    assert_eq!(rails(&look(Vec::new())), (0..7).map(Some).collect::<Vec<_>>(), "the pod has ended");
}
