//! Plans for a machine with several InfiniBand and Ethernet NICs.

mod interfaces;
mod machines;
mod shares;

use super::*;
use crate::kernel::attach::AttachMode;
use crate::kernel::attach::ethtool::{Abilities, Feature};
use crate::kernel::attach::rdma::NetnsMode;
use crate::model::claim::{ClaimRef, OtherDevice, PodRef};
use crate::model::host_link::HostLink;
use crate::model::host_link::{HostAddress, HostRoute, HostRule, SegmentSizes};
use crate::model::plan::{CharDevice, Child, Plan, PlannedDevice, PlannedLink};
use crate::prepare::cdi;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::effects::devices_file;
use crate::prepare::inventory::{FunctionFacts, Inventory};
use cluster_model::names::capacity;
use cluster_model::network_config::{
    EthtoolConfig, Guid, IpPrefix, MacAddress, NeighborConfig, RouteConfig,
};
use cluster_model::network_config::{NetworkConfig, VirtualFunctionConfig};
use node_files::paths::Paths;
use process::chain::Chain;
use publication::cloud::CloudNic;
use publication::live::{function, rdma_device};
use publication::network::{Interface, Withheld};
use publication::nic::{Kept, NicState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::slice;
use topology_graph::{LinkLayer, Netdev, RdmaDevice};

/// A policy that allows pods everything.
const POLICY: Policy = Policy { move_ib_interfaces: true, management_devices: true };

fn char(name: &str, minor: u32) -> CharDevice {
    CharDevice { name: name.into(), major: 231, minor }
}

/// The character devices of an RDMA device.
fn chars(number: u32) -> [CharDevice; 3] {
    [
        char(&format!("uverbs{number}"), 192 + number),
        char(&format!("umad{number}"), number),
        char(&format!("issm{number}"), 64 + number),
    ]
}

fn rdma(number: u32, layer: LinkLayer) -> RdmaDevice {
    let chars = chars(number);
    rdma_device(&format!("mlx5_{number}"), layer, [0, 1, 2].map(|index| chars[index].name.as_str()))
}

fn inventory() -> Inventory {
    let nic = |name: &str, bus: &str, rdma, netdev: Option<&str>| NicState {
        name: name.to_owned(),
        function: Some(function(&format!("{bus}:00:00.0"))),
        rdma,
        netdev: netdev.map(|name| Netdev { name: name.to_owned(), pci: None, part: None }),
        ..NicState::default()
    };
    let infiniband = |number| Some(rdma(number, LinkLayer::InfiniBand));
    let ethernet = |number| Some(rdma(number, LinkLayer::Ethernet));
    let kept = |reason, nic| NicState { kept: Some(Kept { reason, interface: None }), ..nic };
    let nics = vec![
        nic("ib-0", "0101", infiniband(0), None),
        nic("ib-1", "0102", infiniband(1), None),
        nic("eth-0", "0103", ethernet(2), Some("rail0")),
        nic("eth-1", "0104", None, Some("rail1")),
        nic("eth-away", "0105", ethernet(3), None),
        kept(Withheld::Uplink, nic("eth-up", "0106", None, Some("uplink"))),
        kept(Withheld::Member("bond0".to_owned()), nic("eth-slave", "0108", None, Some("slave"))),
        nic("ipoib", "0107", infiniband(4), Some("ibp7")),
    ];
    let chars = (0..5).flat_map(chars).chain([char("rdma_cm", 58)]);
    Inventory {
        had_interface: nics.iter().map(|nic| nic.name.clone()).collect(),
        chars: chars.map(|char| (char.name.clone(), char)).collect(),
        nics,
        ..Inventory::default()
    }
}

fn host_link(name: &str, routes: Vec<HostRoute>) -> HostLink {
    HostLink {
        name: name.into(),
        parent: None,
        lower: None,
        hardware_addr: Some("02:00:00:00:00:01".parse().expect("an address")),
        mtu: 9000,
        up: true,
        sizes: SegmentSizes::default(),
        addresses: vec![HostAddress {
            prefix: "10.1.0.7/16".parse().expect("a prefix"),
            scope: 0,
            peer: None,
            broadcast: None,
            label: None,
            flags: 0,
            metric: None,
            protocol: None,
            seconds: None,
            preferred: None,
        }],
        routes,
        ..HostLink::default()
    }
}

fn route(destination: &str, gateway: Option<&str>) -> HostRoute {
    HostRoute {
        destination: destination.parse().expect("a prefix"),
        gateway: gateway.map(|gateway| gateway.parse().expect("an address")),
        source: None,
        priority: None,
        table: 254,
        scope: 0,
        protocol: 4,
        onlink: false,
        message: None,
    }
}

fn links() -> BTreeMap<String, HostLink> {
    let routes = vec![route("10.2.0.0/16", Some("10.1.0.1"))];
    let uplink = vec![route("0.0.0.0/0", Some("10.0.0.1"))];
    let hardware_addr = MacAddress::from_bytes(&[7; 20]);
    let ipoib = HostLink { hardware_addr, ..host_link("ibp7", vec![]) };
    let links = [
        ("rail0", host_link("rail0", routes)),
        ("rail1", host_link("rail1", vec![])),
        ("uplink", host_link("uplink", uplink)),
        ("slave", host_link("slave", vec![])),
        ("ibp7", ipoib),
    ];
    links.map(|(name, link)| (name.to_owned(), link)).into()
}

/// `rail0` and `rail1` can change two features, one of which is on.
fn abilities() -> BTreeMap<String, Abilities> {
    let feature = |on, changeable| Feature { wanted: on, active: on, changeable };
    let features = [
        ("rx-gro", feature(true, true)),
        ("rx-gro-list", feature(false, true)),
        ("highdma", feature(true, false)),
    ];
    let features = features.map(|(name, feature)| (name.to_owned(), feature)).into();
    let abilities = Abilities { features, private_flags: BTreeMap::new() };
    ["rail0", "rail1"].map(|link| (link.to_owned(), abilities.clone())).into()
}

fn device(name: &str, parameters: Option<Value>) -> AllocatedDevice {
    AllocatedDevice {
        request: "nics".into(),
        pool: "node-1".into(),
        device: name.into(),
        place: None,
        share_id: None,
        consumed: BTreeMap::new(),
        is_whole: false,
        admin_access: false,
        parameters,
        claimed: None,
        address: None,
    }
}

fn claim(uid: &str, devices: Vec<AllocatedDevice>) -> AllocatedClaim {
    AllocatedClaim {
        claim: ClaimRef { namespace: "team".into(), name: "nics".into(), uid: uid.into() },
        pods: vec![PodRef { name: "train-0".into(), uid: "p-1".into() }],
        devices,
        pod_claim_name: None,
        others: vec![OtherDevice {
            request: "gpus".into(),
            driver: "gpu.nvidia.com".into(),
            pool: "node-1".into(),
            device: "gpu-0".into(),
        }],
    }
}

fn decide(claim: &AllocatedClaim, held: &[&Plan]) -> Result<Plan, PlanError> {
    plan(
        claim,
        &Facts {
            inventory: &inventory(),
            links: &links(),
            abilities: &abilities(),
            netns_mode: NetnsMode::Shared,
            held,
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        },
    )
}

fn refusal(claim: &AllocatedClaim, held: &[&Plan]) -> String {
    let error = decide(claim, held).expect_err("refused");
    Chain(&error).to_string()
}

fn paths() -> Paths {
    Paths {
        kubelet: "/var/lib/kubelet".into(),
        driver: "dra.net".into(),
        cdi: "/var/run/cdi".into(),
        run: "/run/dranet".into(),
        netns: "/run/netns".into(),
        sysctl: "/proc/sys/net".into(),
    }
}

fn settings(attach: AttachMode) -> cdi::SpecSettings {
    let environment = cdi::Environment::default();
    cdi::SpecSettings { runtime_root: "/".into(), attach, environment, locked_memory: true }
}

#[test]
fn with_nri_a_container_waits_for_its_sandbox_instead_of_a_hook() {
    for (pod_claim_name, there) in [
        (Some("nics"), "/run/dranet/ready/u-1"),
        // Several pods can have it, and the file is there for each of them.
        (None, "/run/dranet/never/u-1"),
    ] {
        let mut claim = claim("u-1", vec![device("ib-1", None), device("eth-0", None)]);
        claim.pod_claim_name = pod_claim_name.map(str::to_owned);
        let plan = decide(&claim, &[]).expect("possible");
        let spec = cdi::spec(&plan, &paths(), &settings(AttachMode::Nri));
        let edits = serde_json::to_value(spec).expect("JSON")["containerEdits"].clone();
        assert_eq!(edits["hooks"], Value::Null);
        let mounts = edits["mounts"].as_array().expect("mounts");
        let waits_for = mounts.iter().find(|mount| mount["hostPath"] == there);
        let waits_for = waits_for.unwrap_or_else(|| panic!("{edits:#}"));
        assert_eq!(waits_for["containerPath"], "/etc/dranet/network/u-1");
    }

    let nothing_moves = decide(&claim("u-2", vec![device("ib-1", None)]), &[]);
    let spec = cdi::spec(&nothing_moves.expect("possible"), &paths(), &settings(AttachMode::Nri));
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(!text.contains("/etc/dranet/network"), "{text}");
}

#[test]
fn what_a_container_gets() {
    let config = json!({"interface": {"name": "net1", "mtu": 4000}});
    let claim = claim("u-1", vec![device("ib-1", None), device("eth-0", Some(config))]);
    let plan = decide(&claim, &[]).expect("possible");
    let settings = settings(AttachMode::Hook);
    let spec = serde_json::to_value(cdi::spec(&plan, &paths(), &settings)).expect("JSON");
    insta::assert_snapshot!("cdi", format!("{spec:#}"));
    let file = serde_json::to_value(devices_file(&plan)).expect("JSON");
    insta::assert_snapshot!("devices_file", format!("{file:#}"));
    let id = cdi::device_id("dra.net", &plan, &plan.devices[0]);
    assert_eq!(id, "dra.net/claim=u-1-ib-1");
}

#[test]
fn every_part_of_the_environment_is_switchable() {
    let mut plan = decide(&claim("u-1", vec![device("ib-0", None)]), &[]).expect("possible");
    plan.wiring.nccl = Some("<system/>".to_owned());
    let environment = cdi::Environment {
        nccl_ib_hca: false,
        ucx_net_devices: false,
        vllm_nic_mapping: false,
        nvshmem_nic_mapping: false,
        nccl_topo_file: cdi::NcclTopoFile::False,
        devices_file: false,
        device_metadata: false,
    };
    let settings = cdi::SpecSettings { environment, ..settings(AttachMode::Hook) };
    let text = serde_json::to_string(&cdi::spec(&plan, &paths(), &settings)).expect("JSON");
    for absent in ["NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_TOPO_FILE", "mounts"] {
        assert!(!text.contains(absent), "{text}");
    }
}

#[test]
fn connection_parameters_are_passed_to_applications() {
    let roce = json!({"rdma": {"gidIndex": 3, "trafficClass": 106, "serviceLevel": 3}});
    let version = json!({"rdma": {"roceVersion": 2}});
    let told = |devices: Vec<AllocatedDevice>| {
        let plan = decide(&claim("u-1", devices), &[]).expect("possible");
        let spec = cdi::spec(&plan, &paths(), &settings(AttachMode::Hook));
        let spec = serde_json::to_value(spec).expect("JSON");
        let file = serde_json::to_value(devices_file(&plan)).expect("JSON");
        (spec["containerEdits"]["env"].clone(), file["nics"][0]["rdma"].clone())
    };
    let (variables, nic) = told(vec![device("eth-0", Some(roce.clone()))]);
    assert_eq!(
        variables,
        json!([
            "NCCL_IB_HCA==mlx5_2",
            "UCX_NET_DEVICES=mlx5_2:1",
            "NCCL_IB_GID_INDEX=3",
            "NCCL_IB_TC=106",
            "NCCL_IB_SL=3",
            "UCX_IB_GID_INDEX=3",
            "UCX_IB_TRAFFIC_CLASS=106",
            "UCX_IB_SL=3",
        ])
    );
    assert_eq!(nic, roce["rdma"]);
    // A NIC without RDMA sets no connection parameters.
    let two = vec![device("eth-0", Some(version)), device("eth-1", None)];
    assert_eq!(told(two).0[2], "NCCL_IB_ROCE_VERSION_NUM=2");
    assert_eq!(told(vec![device("eth-0", None)]).1, Value::Null);
}

#[test]
fn what_is_refused() {
    let other = decide(&claim("u-0", vec![device("ib-0", None)]), &[]).expect("possible");
    let many = {
        let mut claim = claim("u-1", vec![device("eth-1", None)]);
        claim.pods.push(PodRef { name: "train-1".into(), uid: "p-2".into() });
        claim
    };
    let name = json!({"interface": {"name": "net1"}});
    let one = |device_name: &str, parameters: Option<Value>| {
        refusal(&claim("u-1", vec![device(device_name, parameters)]), &[&other])
    };
    let refusals = [
        one("ib-0", None),
        one("ib-9", None),
        one("eth-away", None),
        one("eth-up", None),
        one("eth-slave", None),
        one("ib-1", Some(name.clone())),
        one("eth-1", Some(json!({"interface": {"mtu": 1}}))),
        one("ipoib", Some(json!({"interface": {"dhcp": true}}))),
        one("eth-1", Some(json!({"ethtool": {"features": {"tso": false}}}))),
        one("eth-1", Some(json!({"ethtool": {"features": {"highdma": false}}}))),
        one("eth-1", Some(json!({"ethtool": {"privateFlags": {"legacy-rx": true}}}))),
        one("eth-1", Some(json!({"profile": "fast"}))),
        one("eth-1", Some(json!({"interface": {"type": "ipoib"}}))),
        one("ipoib", Some(json!({"interface": {"type": "macvlan"}}))),
        one("eth-1", Some(json!({"rdma": {"serviceLevel": 3}}))),
        refusal(
            &claim(
                "u-1",
                vec![
                    device("ib-1", Some(json!({"rdma": {"serviceLevel": 3}}))),
                    device("eth-0", None),
                ],
            ),
            &[],
        ),
        refusal(&many, &[]),
        refusal(
            &claim("u-1", vec![device("eth-0", Some(name.clone())), device("eth-1", Some(name))]),
            &[],
        ),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn a_plan_survives_serialization() {
    let plan =
        decide(&claim("u-1", vec![device("ib-0", None), device("eth-0", None)]), &[]).expect("ok");
    let text = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("own text"), plan);
}

#[test]
fn the_claims_status_follows_the_progress() {
    use crate::publish::claim_status::{Progress, render};
    let config = json!({"interface": {"name": "net1", "addresses": ["10.9.0.1/24"]}});
    let claim = claim("u-1", vec![device("ib-1", None), device("eth-0", Some(config))]);
    let plan = decide(&claim, &[]).expect("possible");
    let now = "2026-01-02T03:04:05Z".parse().expect("a time");
    let statuses = [Progress::Prepared, Progress::Attached]
        .map(|progress| format!("{:#}", render(&plan, "dra.net", progress, now)["status"]));
    insta::assert_snapshot!("claim_status", statuses.join("\n"));
}

/// What pods get only if the administrator allows it: management of the subnet, and an
/// interface over which the host may have mounted storage.
#[test]
fn by_default_pods_get_no_management_devices_and_no_ipoib() {
    let decide = |device_name: &str, parameters: Option<Value>| {
        let (inventory, links, abilities) = (inventory(), links(), abilities());
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &abilities,
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: Policy::default(),
            boot_id: None,
            cloud_nics: &[],
        };
        plan(&claim("u-1", vec![device(device_name, parameters)]), &facts)
    };
    let plan = decide("ipoib", None).expect("it needs no interface");
    assert_eq!(plan.devices[0].link, None, "ibp7 stays");
    let rdma = plan.devices[0].rdma.as_ref().expect("verbs");
    let names: Vec<_> = rdma.chars.iter().map(|char| char.name.as_str()).collect();
    assert_eq!(names, ["uverbs4"]);
    let error = decide("ipoib", Some(json!({"interface": {"name": "net1"}})));
    let error = Chain(&error.expect_err("refused")).to_string();
    assert!(error.contains("RDMA only"), "{error}");
}
