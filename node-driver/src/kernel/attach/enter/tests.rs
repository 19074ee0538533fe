//! The steps for two interfaces and an RDMA device, wherever they are.

use super::*;
use crate::model::claim::ClaimRef;
use crate::model::host_link::{HostLink, LinkIdentity};
use crate::model::plan::{PlannedRdma, Wiring};
use cluster_model::network_config::{NetworkConfig, RdmaConfig};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use process::chain::Chain;

fn link((host, index): (&str, u32), name: &str, child: Option<Child>) -> PlannedLink {
    let host = HostLink {
        name: host.into(),
        mtu: 1500,
        up: true,
        identity: LinkIdentity { index, ..LinkIdentity::default() },
        ..HostLink::default()
    };
    let (name, config) = (name.parse().unwrap(), NetworkConfig::default());
    PlannedLink { host, child, mark: None, rate: None, name, config }
}

fn device(rdma: Option<&str>, link: PlannedLink) -> PlannedDevice {
    let rdma = rdma.map(|name| PlannedRdma {
        name: name.into(),
        part: None,
        ports: vec![1],
        chars: vec![],
        moves: true,
        parameters: RdmaConfig::default(),
    });
    PlannedDevice {
        function: None,
        request: "nics".into(),
        pool: "node-1".into(),
        device: link.host.name.clone(),
        place: None,
        share_id: None,
        is_whole: false,
        admin_access: false,
        pci_bus_id: "0101:00:00.0".into(),
        rdma,
        link: Some(link),
    }
}

/// `rail0` moves with its RDMA device and becomes `net0`; `rail1` gets a child `net1`.
fn plan() -> Plan {
    Plan {
        claim: ClaimRef { namespace: "team".into(), name: "a".into(), uid: "u".into() },
        pods: vec![],
        devices: vec![
            device(Some("mlx5_0"), link(("rail0", 3), "net0", None)),
            device(None, link(("rail1", 4), "net1", Some(Child::MacVlan))),
        ],
        rdma_cm: None,
        plugin_gpus: Vec::new(),
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

/// An interface with this name and index; a macvlan if it has a parent.
fn message(name: &str, index: u32, parent: Option<u32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::MacVlan)]);
    message.attributes.extend(parent.into_iter().flat_map(|parent| {
        [kind.clone(), LinkAttribute::Link(parent), LinkAttribute::LinkNetNsId(0)]
    }));
    message
}

/// Interfaces by name and index; one with a parent is a macvlan.
fn inside(links: &[(&str, u32, Option<u32>)], rdma: &[&str]) -> Inside {
    let links = links.iter().map(|(name, index, parent)| message(name, *index, *parent));
    Inside { links: links.collect(), rdma: rdma.iter().map(|name| (*name).to_owned()).collect() }
}

/// The steps as text, or the error. `known` is the recorded index of `net0`.
fn told(inside: &Inside, outside: &[(&str, u32)], known: Option<u32>) -> Vec<String> {
    let plan = plan();
    let known = known.map(|index| ("net0".parse().unwrap(), index)).into_iter().collect();
    let outside: Vec<_> = outside.iter().map(|(name, index)| message(name, *index, None)).collect();
    match due(&plan, &known, inside, &outside) {
        Err(error) => vec![Chain(&error).to_string()],
        Ok(due) => due.steps.iter().map(|(_, step)| text(step)).collect(),
    }
}

fn text(step: &Step<'_>) -> String {
    match step {
        Step::Rdma(name) => format!("{name} moves"),
        Step::Link(link, Moving { index, in_pod, left }) => {
            format!("{index} moves and is {} {in_pod}{}", link.name, left.join(", "))
        }
        Step::Child(link, child, parent) => format!("{child} {} is made on {parent}", link.name),
    }
}

#[test]
fn missing_devices_are_due() {
    let both = [("rail0", 3), ("rail1", 4)];
    let all = ["mlx5_0 moves", "3 moves and is net0 3", "macvlan net1 is made on 4"];
    let elsewhere = ["3 moves and is net0 6", all[2]];
    for (inside, outside, known, expected) in [
        (inside(&[("eth0", 2, None)], &[]), &both[..], None, &all[..]),
        (inside(&[], &["mlx5_0"]), &both, None, &all[1..]),
        (
            inside(&[("a", 3, None), ("b", 4, None), ("c", 5, None)], &["mlx5_0"]),
            &both,
            None,
            &elsewhere,
        ),
        (inside(&[], &["mlx5_0"]), &both, Some(3), &all[1..]),
        (inside(&[("net0", 3, None)], &["mlx5_0"]), &both[1..], Some(3), &all[2..]),
        (inside(&[("renamed", 6, None)], &["mlx5_0"]), &both[1..], Some(6), &all[2..]),
        (inside(&[("net0", 3, None), ("net1", 9, Some(4))], &["mlx5_0"]), &both[1..], Some(3), &[]),
    ] {
        assert_eq!(told(&inside, outside, known), expected, "{inside:?} {outside:?}");
    }
}

#[test]
fn impossible_plans_are_refused_before_anything_moves() {
    let both = [("rail0", 3), ("rail1", 4)];
    let other = [("rail0", 3), ("other", 4)];
    for (inside, outside, known, expected) in [
        (
            inside(&[("net0", 9, None)], &[]),
            &both[..],
            None,
            "the pod already has an interface `net0`",
        ),
        (
            inside(&[("net0", 3, None)], &[]),
            &both,
            Some(3),
            "the pod already has an interface `net0`",
        ),
        (inside(&[("net1", 9, None)], &[]), &both, None, "the pod already has an interface `net1`"),
        (
            inside(&[("net1", 9, Some(5))], &[]),
            &both,
            None,
            "the pod already has an interface `net1`",
        ),
        (inside(&[], &[]), &both[1..], None, "interface `rail0` is not in the host's"),
        (inside(&[("net0", 9, None)], &[]), &both[1..], None, "interface `rail0` is not in the"),
        (inside(&[("net0", 9, None)], &[]), &both[1..], Some(3), "interface `rail0` is not in the"),
        (inside(&[], &[]), &both[..1], None, "interface `rail1` is not in the host's"),
    ] {
        let told = told(&inside, outside, known);
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
    }
    assert_eq!(told(&inside(&[], &["mlx5_0"]), &other, None).len(), 2, "known by its index");
}
