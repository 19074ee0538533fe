//! What is due of two interfaces and an RDMA device, wherever they are.

use super::*;
use crate::prepare::claim::ClaimRef;
use crate::prepare::host_link::{HostLink, SegmentSizes};
use crate::prepare::plan::PlannedRdma;
use crate::prepare::plan::Wiring;
use cluster_model::network_config::NetworkConfig;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use process::chain::Chain;

fn link(host: &str, name: &str, child: Option<Child>) -> PlannedLink {
    let host = HostLink {
        name: host.into(),
        parent: None,
        hardware_addr: None,
        mtu: 1500,
        up: true,
        sizes: SegmentSizes::default(),
        addresses: vec![],
        routes: vec![],
        ethtool: None,
    };
    PlannedLink { host, child, name: name.parse().unwrap(), config: NetworkConfig::default() }
}

fn device(rdma: Option<&str>, link: PlannedLink) -> PlannedDevice {
    let rdma = rdma.map(|name| PlannedRdma {
        name: name.into(),
        ports: vec![1],
        chars: vec![],
        moves: true,
    });
    PlannedDevice {
        request: "nics".into(),
        pool: "node-1".into(),
        device: link.host.name.clone(),
        share_id: None,
        admin_access: false,
        pci_bus_id: "0101:00:00.0".into(),
        rdma,
        link: Some(link),
    }
}

/// `rail0` moves with its RDMA device and is `net0` then, `rail1` gets a child `net1`.
fn plan() -> Plan {
    Plan {
        claim: ClaimRef { namespace: "team".into(), name: "a".into(), uid: "u".into() },
        pods: vec![],
        devices: vec![
            device(Some("mlx5_0"), link("rail0", "net0", None)),
            device(None, link("rail1", "net1", Some(Child::MacVlan))),
        ],
        rdma_cm: None,
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
    }
}

/// Interfaces by name, of which one is a macvlan where it says on what.
fn inside(links: &[(&str, Option<u32>)], rdma: &[&str]) -> Inside {
    let message = |parent: Option<u32>| {
        let mut message = LinkMessage::default();
        let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::MacVlan)]);
        let of = |parent| [kind.clone(), LinkAttribute::Link(parent)];
        message.attributes.extend(parent.into_iter().flat_map(of));
        message
    };
    let links = links.iter().map(|(name, parent)| ((*name).to_owned(), message(*parent)));
    Inside { links: links.collect(), rdma: rdma.iter().map(|name| (*name).to_owned()).collect() }
}

/// The steps as text, or why there are none.
fn told(inside: &Inside, outside: &[(&str, u32)]) -> Vec<String> {
    let plan = plan();
    match steps(&plan, inside, &outside.iter().copied().collect()) {
        Err(error) => vec![Chain(&error).to_string()],
        Ok(steps) => steps.iter().map(|(_, step)| text(step)).collect(),
    }
}

fn text(step: &Step<'_>) -> String {
    match step {
        Step::Rdma(name) => format!("{name} moves"),
        Step::Link(link, index) => format!("{index} moves and is {}", link.name),
        Step::Child(link, child, parent) => format!("{child} {} is made on {parent}", link.name),
    }
}

#[test]
fn what_is_not_there_yet_is_due() {
    let both = [("rail0", 3), ("rail1", 4)];
    let all = ["mlx5_0 moves", "3 moves and is net0", "macvlan net1 is made on 4"];
    for (inside, outside, expected) in [
        (inside(&[("eth0", None)], &[]), &both[..], &all[..]),
        (inside(&[], &["mlx5_0"]), &both, &all[1..]),
        (inside(&[("net0", None)], &["mlx5_0"]), &both[1..], &all[2..]),
        (inside(&[("net0", None), ("net1", Some(4))], &["mlx5_0"]), &both[1..], &[]),
    ] {
        assert_eq!(told(&inside, outside), expected, "{inside:?} {outside:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_moves() {
    let both = [("rail0", 3), ("rail1", 4)];
    for (inside, outside, expected) in [
        (inside(&[("net0", None)], &[]), &both[..], "the pod has an interface `net0` already"),
        (inside(&[("net1", None)], &[]), &both, "the pod has an interface `net1` already"),
        (inside(&[("net1", Some(9))], &[]), &both, "the pod has an interface `net1` already"),
        (inside(&[], &[]), &both[1..], "interface `rail0` is not in the host's"),
        (inside(&[], &[]), &both[..1], "interface `rail1` is not in the host's"),
    ] {
        let told = told(&inside, outside);
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
    }
}
