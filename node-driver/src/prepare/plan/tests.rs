//! Plans for a machine with several InfiniBand and Ethernet NICs.

use super::*;
use crate::facts::cloud::CloudNic;
use crate::facts::network::Withheld;
use crate::kernel::attach::AttachMode;
use crate::kernel::attach::ethtool::{Abilities, Feature};
use crate::kernel::attach::host_links::HostLinks;
use crate::kernel::attach::rdma::NetnsMode;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::effects::devices_file;
use crate::prepare::host_link::{HostAddress, HostRoute, HostRule, LinkSettings, SegmentSizes};
use crate::prepare::inventory::{FunctionFacts, Inventory, NicFacts, RdmaFacts};
use crate::prepare::paths::Paths;
use crate::runtime::cdi;
use cluster_model::names::capacity;
use cluster_model::network_config::{
    EthtoolConfig, Guid, IpPrefix, MacAddress, NeighborConfig, RouteConfig,
};
use process::chain::Chain;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

/// A policy that allows pods everything.
const POLICY: Policy =
    Policy { move_ib_interfaces: true, management_devices: true, imex_channel: None };

fn char(name: &str, minor: u32) -> CharDevice {
    CharDevice { name: name.into(), major: 231, minor }
}

fn rdma(number: u32, is_infiniband: bool) -> RdmaFacts {
    RdmaFacts {
        name: format!("mlx5_{number}"),
        ports: vec![1],
        inactive: vec![],
        is_infiniband,
        chars: vec![
            char(&format!("uverbs{number}"), 192 + number),
            char(&format!("umad{number}"), number),
            char(&format!("issm{number}"), 64 + number),
        ],
        missing: vec![],
    }
}

fn inventory() -> Inventory {
    let nic = |bus: &str, rdma, netdev: Option<&str>| NicFacts {
        address: Some(format!("{bus}:00:00.0").parse().expect("an address")),
        rdma,
        netdev: netdev.map(str::to_owned),
        had_interface: true,
        is_virtual_function: false,
        physical_mtu: None,
        function: None,
    };
    let devices = [
        ("ib-0", nic("0101", Some(rdma(0, true)), None)),
        ("ib-1", nic("0102", Some(rdma(1, true)), None)),
        ("eth-0", nic("0103", Some(rdma(2, false)), Some("rail0"))),
        ("eth-1", nic("0104", None, Some("rail1"))),
        ("eth-away", nic("0105", Some(rdma(3, false)), None)),
        ("eth-up", nic("0106", None, Some("uplink"))),
        ("eth-slave", nic("0108", None, Some("slave"))),
        ("ipoib", nic("0107", Some(rdma(4, true)), Some("ibp7"))),
    ];
    Inventory {
        devices: devices.into_iter().map(|(name, nic)| (name.to_owned(), nic)).collect(),
        rdma_cm: Some(char("rdma_cm", 58)),
        imex: None,
    }
}

fn host_link(name: &str, routes: Vec<HostRoute>) -> HostLink {
    HostLink {
        name: name.into(),
        parent: None,
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
            seconds: None,
        }],
        routes,
        identity: None,
        neighbors: vec![],
        rules: vec![],
        settings: LinkSettings::default(),
        router: None,
        ethtool: None,
        carried: None,
        disciplines: BTreeSet::new(),
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

fn links() -> HostLinks {
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
    let withheld = [("uplink", Withheld::Uplink), ("slave", Withheld::Member("bond0".to_owned()))];
    HostLinks {
        links: links.map(|(name, link)| (name.to_owned(), link)).into(),
        withheld: withheld.map(|(name, why)| (name.to_owned(), why)).into(),
    }
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

fn settings(attach: AttachMode) -> cdi::Settings {
    let environment = cdi::Environment::default();
    cdi::Settings { runtime_root: "/".into(), attach, environment, locked_memory: true }
}

#[test]
fn with_nri_a_container_waits_for_its_sandbox_instead_of_a_hook() {
    let claim = claim("u-1", vec![device("ib-1", None), device("eth-0", None)]);
    let plan = decide(&claim, &[]).expect("possible");
    let spec = cdi::spec(&plan, &paths(), &settings(AttachMode::Nri));
    let edits = serde_json::to_value(spec).expect("JSON")["containerEdits"].clone();
    assert_eq!(edits["hooks"], Value::Null);
    let mounts = edits["mounts"].as_array().expect("mounts");
    let waits_for = mounts.iter().find(|mount| mount["hostPath"] == "/run/dranet/ready/u-1");
    let waits_for = waits_for.unwrap_or_else(|| panic!("{edits:#}"));
    assert_eq!(waits_for["containerPath"], "/etc/dranet/network/u-1");

    let nothing_moves = decide(&self::claim("u-2", vec![device("ib-1", None)]), &[]);
    let spec = cdi::spec(&nothing_moves.expect("possible"), &paths(), &settings(AttachMode::Nri));
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(!text.contains("ready"), "{text}");
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
fn an_imex_channel_is_given_with_nics_but_not_to_monitors() {
    let (mut inventory, links) = (inventory(), links());
    inventory.imex = Some(CharDevice { name: "channel3".into(), major: 507, minor: 3 });
    let nodes = |admin_access: bool| {
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        let device = AllocatedDevice { admin_access, ..device("ib-1", None) };
        let plan = plan(&claim("u-1", vec![device]), &facts).expect("possible");
        let spec = cdi::spec(&plan, &paths(), &settings(AttachMode::Hook));
        let spec = serde_json::to_value(spec).expect("JSON");
        let nodes = spec["containerEdits"]["deviceNodes"].as_array().expect("nodes").clone();
        nodes.into_iter().find(|node| node["path"] != "/dev/infiniband/rdma_cm")
    };
    assert_eq!(
        nodes(false),
        Some(json!({
            "path": "/dev/nvidia-caps-imex-channels/channel3",
            "hostPath": "/dev/nvidia-caps-imex-channels/channel3",
            "type": "c", "major": 507, "minor": 3, "permissions": "rw",
        }))
    );
    assert_eq!(nodes(true), None);
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
        nccl_topo_file: false,
        devices_file: false,
        device_metadata: false,
    };
    let settings = cdi::Settings { environment, ..settings(AttachMode::Hook) };
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

/// A pattern names each interface of the pod, also those of its other claims; the name of the pod's
/// own interface is never that of a NIC.
#[test]
fn several_interfaces_have_distinct_names() {
    let names = |plan: &Plan| plan.links().map(|link| link.name.to_string()).collect::<Vec<_>>();
    let with_name = |name: &str| Some(json!({"interface": {"name": name}}));
    let nics = |uid, one, two| claim(uid, vec![device("eth-0", one), device("eth-1", two)]);
    let both = decide(&nics("u-1", with_name("net%d"), with_name("net%d")), &[]).expect("possible");
    assert_eq!(names(&both), ["net0", "net1"]);
    // A driver of an earlier version can read what is stored.
    let stored = both.links().map(|link| link.config.interface.name.clone().expect("a name"));
    assert_eq!(stored.map(|name| name.to_string()).collect::<Vec<_>>(), ["net0", "net1"]);
    let beside =
        decide(&nics("u-1", with_name("net%d"), with_name("net0")), &[]).expect("possible");
    assert_eq!(names(&beside), ["net1", "net0"]);
    let one = claim("u-1", vec![device("eth-0", with_name("net%d"))]);
    let held = decide(&one, &[]).expect("possible");
    let other = claim("u-2", vec![device("eth-1", with_name("net%d"))]);
    let next = decide(&other, &[&held]).expect("possible");
    assert_eq!(names(&next), ["net1"]);

    let mut links = links();
    for (link, name) in [("rail0", "eth0"), ("rail1", "a:1")] {
        links.links.get_mut(link).expect("an interface").name = name.into();
    }
    let facts = Facts {
        inventory: &inventory(),
        links: &links,
        abilities: &abilities(),
        netns_mode: NetnsMode::Shared,
        held: &[],
        policy: POLICY,
        boot_id: None,
        cloud_nics: &[],
    };
    let renamed = plan(&nics("u-1", None, None), &facts).expect("possible");
    assert_eq!(names(&renamed), ["net0", "net1"]);
    let asked = plan(&nics("u-1", with_name("eth1"), with_name("net0")), &facts).expect("possible");
    assert_eq!(names(&asked), ["eth1", "net0"]);
}

#[test]
fn addresses_and_routes_are_inherited_unless_configured() {
    let link = |parameters| {
        let plan = decide(&claim("u-1", vec![device("eth-0", parameters)]), &[]).expect("possible");
        plan.devices[0].link.clone().expect("an interface")
    };
    let inherited = link(None);
    assert_eq!(inherited.name.as_str(), "rail0");
    let text = |link: &PlannedLink| serde_json::to_value(&link.config).expect("JSON");
    assert_eq!(
        text(&inherited),
        json!({
            "interface": {"addresses": ["10.1.0.7/16"]},
            "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1", "scope": 0, "table": 254}]
        })
    );
    for own in
        [json!({"interface": {"addresses": ["10.9.0.1/24"]}}), json!({"interface": {"dhcp": true}})]
    {
        assert_eq!(text(&link(Some(own.clone()))), own);
    }
}

#[test]
fn features_use_kernel_names_and_record_the_hosts_values() {
    let config = json!({"ethtool": {"features": {"gro": false, "rx-gro-list": true}}});
    let decided = decide(&claim("u-1", vec![device("eth-0", Some(config))]), &[]);
    let link = decided.expect("possible").devices[0].link.clone().expect("an interface");
    let text = |config: Option<EthtoolConfig>| serde_json::to_value(config).expect("JSON");
    assert_eq!(
        text(link.config.ethtool)["features"],
        json!({"rx-gro": false, "rx-gro-list": true})
    );
    assert_eq!(text(link.host.ethtool)["features"], json!({"rx-gro": true, "rx-gro-list": false}));
    // A child interface has its own features.
    let config = json!({"ethtool": {"features": {"gro": false}}});
    let link = decide(&share("u-1", "s-1", Some(config)), &[]).expect("possible").devices[0]
        .link
        .clone()
        .expect("an interface");
    assert_eq!(text(link.config.ethtool)["features"], json!({"gro": false}));
    assert_eq!(link.host.ethtool, None);
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
fn shares_and_monitoring_are_allowed_beside_a_holder() {
    let with = |share: Option<&str>, admin_access| {
        let device = AllocatedDevice {
            share_id: share.map(str::to_owned),
            admin_access,
            ..device("ib-0", None)
        };
        claim("u-1", vec![device])
    };
    let held = decide(&with(Some("s-1"), false), &[]).expect("possible");
    decide(&with(Some("s-2"), false), &[&held]).expect("another share");
    decide(&with(None, true), &[&held]).expect("monitoring");
    decide(&with(Some("s-1"), false), &[&held]).expect_err("the same share");
    decide(&with(None, false), &[&held]).expect_err("all of it");
}

fn share(uid: &str, share: &str, parameters: Option<Value>) -> AllocatedClaim {
    let share_id = Some(share.to_owned());
    claim(uid, vec![AllocatedDevice { share_id, ..device("eth-0", parameters) }])
}

fn address(kind: &str, address: &str) -> Value {
    json!({"interface": {"type": kind, "addresses": [address]}})
}

#[test]
fn a_share_gets_a_child_of_the_nics_interface() {
    let link = |claim: &AllocatedClaim| {
        decide(claim, &[]).expect("possible").devices[0].link.clone().expect("an interface")
    };
    let one = link(&share("u-1", "s-1", None));
    let mac = |link: &PlannedLink| link.config.interface.hardware_addr.clone();
    assert_eq!(one.child, Some(Child::MacVlan));
    // The host's addresses and routes stay with the host.
    assert_eq!((one.config.interface.addresses.len(), one.config.routes.len()), (0, 0));
    assert_eq!(mac(&one), mac(&link(&share("u-1", "s-1", None))), "the same in each sandbox");
    assert_ne!(mac(&one), mac(&link(&share("u-2", "s-2", None))));
    let flat = link(&share("u-1", "s-1", Some(address("ipvlan", "10.9.0.1/24"))));
    assert_eq!((flat.child, mac(&flat)), (Some(Child::IpVlan), None));
    // Also for a claim with the whole NIC.
    let own = claim("u-1", vec![device("eth-0", Some(address("macvlan", "10.9.0.1/24")))]);
    assert_eq!(link(&own).child, Some(Child::MacVlan));
}

/// No other claim can have a part of it, so it moves into the pod like a NIC that cannot be
/// shared.
#[test]
fn a_claim_that_has_all_of_a_shareable_nic_gets_the_nic_itself() {
    let decide = |netns_mode, share: Option<&str>, is_whole, held: &[&Plan]| {
        let (inventory, links) = (inventory(), links());
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode,
            held,
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        let share_id = share.map(str::to_owned);
        let device = AllocatedDevice { share_id, is_whole, ..device("eth-0", None) };
        plan(&claim(share.unwrap_or("s-0"), vec![device]), &facts)
    };
    let alone = decide(NetnsMode::Exclusive, None, false, &[]).expect("possible");
    let whole = decide(NetnsMode::Exclusive, Some("s-0"), true, &[]).expect("possible");
    let share_id = None;
    assert_eq!(
        PlannedDevice { share_id, is_whole: false, ..whole.devices[0].clone() },
        alone.devices[0]
    );
    let shared = |held: &[&Plan], share| decide(NetnsMode::Shared, Some(share), false, held);
    shared(&[&whole], "s-1").expect_err("nothing is left");
    let part = shared(&[], "s-1").expect("possible");
    decide(NetnsMode::Shared, Some("s-0"), true, &[&part]).expect_err("another has a part");
    shared(&[&part], "s-2").expect("another part");
}

/// A claim with all of the bandwidth is limited by the port itself.
#[test]
fn only_a_part_of_the_bandwidth_limits_the_interface() {
    let rate = |bandwidth: Option<i64>, whole: Option<u64>| {
        let mut claim = share("u-1", "s-1", None);
        let bandwidth = bandwidth.map(|bits| (capacity::BANDWIDTH.to_owned(), bits));
        claim.devices[0].consumed.extend(bandwidth);
        let mut plan = decide(&claim, &[]).expect("possible");
        plan.unlimit_whole(|_| whole);
        plan.links().next().expect("an interface").rate
    };
    assert_eq!(rate(Some(100), Some(400)), Some(100));
    assert_eq!(rate(Some(100), None), Some(100), "the slice is not known yet");
    assert_eq!(rate(Some(400), Some(400)), None);
    assert_eq!(rate(None, Some(400)), None);
}

#[test]
fn conflicting_shares_of_one_nic_are_refused() {
    let one = share("u-1", "s-1", Some(address("macvlan", "10.9.0.1/24")));
    let held = decide(&one, &[]).expect("possible");
    decide(&share("u-2", "s-2", Some(address("macvlan", "10.9.0.2/24"))), &[&held])
        .expect("possible");
    let exclusive = {
        let (inventory, links) = (inventory(), links());
        let netns_mode = NetnsMode::Exclusive;
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        Chain(&plan(&one, &facts).expect_err("refused")).to_string()
    };
    let refusals = [
        refusal(&share("u-2", "s-2", Some(address("macvlan", "10.9.0.1/16"))), &[&held]),
        refusal(&share("u-2", "s-2", Some(address("ipvlan", "10.9.0.2/24"))), &[&held]),
        refusal(&share("u-2", "s-2", Some(address("passthrough", "10.9.0.2/24"))), &[&held]),
        refusal(&share("u-2", "s-1", None), &[&held]),
        exclusive,
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r"
    device `eth-0`: address `10.9.0.1` is used by claim `team/nics` on the same NIC
    device `eth-0`: claim `team/nics` has a macvlan on it, and an interface cannot have ipvlan besides; set `interface.type` to `macvlan`
    device `eth-0` is shared, and its interface stays with the host; set `interface.type` to `macvlan` or `ipvlan`
    device `eth-0` is held by claim `team/nics`, whose pod still uses it
    device `eth-0` is shared, and while the node's RDMA subsystem is in exclusive mode an RDMA device is in one pod only; set shared mode, or use whole devices
    ");
}

#[test]
fn many_pods_share_a_claim_that_has_no_interface() {
    let mut claim = claim("u-1", vec![device("ib-0", None)]);
    claim.pods.push(PodRef { name: "train-1".into(), uid: "p-2".into() });
    decide(&claim, &[]).expect("character devices can be in many pods");
}

#[test]
fn in_exclusive_mode_an_rdma_device_goes_into_one_pod() {
    let decide = |claim: &AllocatedClaim| {
        let (inventory, links) = (inventory(), links());
        let netns_mode = NetnsMode::Exclusive;
        let abilities = &BTreeMap::new();
        let (inventory, links) = (&inventory, &links);
        plan(
            claim,
            &Facts {
                inventory,
                links,
                abilities,
                netns_mode,
                held: &[],
                policy: POLICY,
                boot_id: None,
                cloud_nics: &[],
            },
        )
    };
    let mut claim = claim("u-1", vec![device("ib-0", None)]);
    let plan = decide(&claim).expect("possible");
    assert!(plan.devices[0].moves());
    let settings = settings(AttachMode::Hook);
    let text = serde_json::to_string(&cdi::spec(&plan, &paths(), &settings)).expect("JSON");
    assert!(text.contains("createRuntime"), "{text}");
    claim.pods.push(PodRef { name: "train-1".into(), uid: "p-2".into() });
    insta::assert_snapshot!(
        Chain(&decide(&claim).expect_err("two pods")).to_string(),
        @"device `ib-0` has an RDMA device, which only one pod can have while the node's RDMA subsystem is in exclusive mode, but the claim is reserved for 2 pods"
    );
    claim.devices[0].admin_access = true;
    assert!(!decide(&claim).expect("monitoring").devices[0].moves());
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

/// The interface stays with the host, whether or not the administrator allows pods to have
/// such interfaces.
#[test]
fn an_ipoib_child_has_its_partition_and_a_mark() {
    let parameters = json!({"interface": {
        "type": "ipoib", "pkey": "0x1", "name": "net1", "addresses": ["10.9.0.1/24"],
    }});
    let planned = |uid: &str, policy: Policy| {
        let (inventory, links) = (inventory(), links());
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy,
            boot_id: None,
            cloud_nics: &[],
        };
        let claim = claim(uid, vec![device("ipoib", Some(parameters.clone()))]);
        plan(&claim, &facts).expect("possible").links().next().expect("an interface").clone()
    };
    let one = planned("u-1", Policy::default());
    assert_eq!((one.child, one.host.name.as_str()), (Some(Child::IpoIb), "ibp7"));
    assert_eq!(one, planned("u-1", POLICY), "the same in each sandbox");
    assert_ne!(one.mark, planned("u-2", POLICY).mark);
    assert_eq!(one.config.interface.hardware_addr, None, "the kernel's");
    let partition = one.config.interface.pkey.expect("a partition");
    assert_eq!(partition.of_full_member(), 0x8001);
    // A share of such a NIC gets a child too.
    let share_id = Some("s-1".to_owned());
    let share = claim("u-3", vec![AllocatedDevice { share_id, ..device("ipoib", None) }]);
    let share = decide(&share, &[]).expect("possible");
    assert_eq!(share.links().next().expect("an interface").child, Some(Child::IpoIb));
}

/// A rail with its own table, in the pod and in a routing domain (VRF) of the pod.
#[test]
fn rules_and_neighbours_are_inherited_and_a_vrf_has_its_table() {
    let rule = HostRule {
        priority: 1700,
        source: Some("10.1.0.7/32".parse().expect("a prefix")),
        destination: None,
        table: 700,
    };
    let neighbor = NeighborConfig {
        destination: "10.1.0.1".parse().expect("an address"),
        hardware_addr: "02:00:00:00:00:02".parse().expect("an address"),
    };
    let decide = |parameters: Option<Value>| {
        let (inventory, mut links) = (inventory(), links());
        let rail = links.links.get_mut("rail0").expect("it is there");
        rail.rules = vec![rule.clone()];
        rail.neighbors = vec![neighbor.clone()];
        rail.routes.push(route("0.0.0.0/0", Some("10.1.0.1")));
        rail.routes.push(HostRoute { table: 700, ..route("0.0.0.0/0", Some("10.1.0.1")) });
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        let plan = plan(&claim("u-1", vec![device("eth-0", parameters)]), &facts);
        plan.expect("possible").links().next().expect("an interface").config.clone()
    };
    let routes = |config: &NetworkConfig| {
        let route = |route: &RouteConfig| (route.destination.to_string(), route.table);
        config.routes.iter().map(route).collect::<Vec<_>>()
    };
    let main = decide(None);
    let expected = [("10.2.0.0/16".to_owned(), 254), ("0.0.0.0/0".to_owned(), 700)];
    assert_eq!(routes(&main), expected, "the pod has a default route of its own");
    assert_eq!((main.rules.len(), main.rules[0].table, main.rules[0].priority), (1, 700, 1700));
    assert_eq!(main.neighbors, slice::from_ref(&neighbor));

    let domain = decide(Some(json!({"interface": {"vrf": {"name": "blue"}}})));
    let expected = [("10.2.0.0/16", 0), ("0.0.0.0/0", 0), ("0.0.0.0/0", 700)];
    let expected = expected.map(|(destination, table)| (destination.to_owned(), table));
    assert_eq!(routes(&domain), expected, "0 is the domain's");
    assert_eq!((domain.rules.len(), domain.neighbors.len()), (0, 1));

    let own = decide(Some(json!({"interface": {"addresses": ["192.168.7.5/24"]}})));
    assert_eq!((routes(&own).len(), own.rules.len(), own.neighbors.len()), (0, 0, 0));
}

/// As upstream creates them, if the pod can reach the router and the configuration has no
/// own rules.
#[test]
fn azure_metadata_becomes_rules_and_routes() {
    let nics = [CloudNic {
        hardware_addr: "02:00:00:00:00:01".parse().expect("an address"),
        subnet: Some("10.1.0.0/16".parse().expect("a prefix")),
        ipv6: Some("fd00::7".parse().expect("an address")),
    }];
    let decide = |parameters: Value, has_rules: bool| {
        let (inventory, mut links) = (inventory(), links());
        let rail = links.links.get_mut("rail0").expect("it is there");
        rail.router = Some("fe80::1".parse().expect("an address"));
        let source = Some("10.1.0.7/32".parse().expect("a prefix"));
        let rule = HostRule { priority: 1700, source, destination: None, table: 700 };
        rail.rules = if has_rules { vec![rule] } else { vec![] };
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &nics,
        };
        let plan = plan(&claim("u-1", vec![device("eth-0", Some(parameters))]), &facts);
        let plan = plan.expect("possible");
        let config = &plan.links().next().expect("an interface").config;
        let rules = config.rules.iter().map(|rule| (rule.source, rule.table));
        let text =
            |(source, table): (Option<IpPrefix>, u32)| format!("{} {table}", source.expect("one"));
        let gateways = config.routes.iter().filter(|route| route.table == 100);
        let gateways = gateways.map(|route| route.gateway.expect("one").to_string());
        (rules.map(text).collect::<Vec<_>>(), gateways.collect::<Vec<_>>())
    };
    let interface = |addresses: &[&str]| json!({"interface": {"addresses": addresses}});
    let own_route = json!({"routes": [
        {"destination": "0.0.0.0/0", "gateway": "10.1.0.99", "table": 100}
    ]});
    let v4 = (vec!["10.1.0.0/16 100"], vec!["10.1.0.1"]);
    let none = (vec![], vec![]);
    for (parameters, has_rules, (rules, gateways)) in [
        (json!({}), false, v4.clone()),
        (json!({"interface": {"dhcp": true}}), false, v4.clone()),
        (interface(&["10.1.0.9/16"]), false, v4.clone()),
        (
            interface(&["10.1.0.9/16", "fd00::7/64"]),
            false,
            (vec!["10.1.0.0/16 100", "fd00::7/128 100"], vec!["10.1.0.1", "fe80::1"]),
        ),
        (own_route, false, (v4.0, vec!["10.1.0.99"])),
        // The router is not reachable from there.
        (interface(&["192.168.7.5/24"]), false, none.clone()),
        (json!({"interface": {"vrf": {"name": "blue"}}}), false, none.clone()),
        (json!({"interface": {"type": "macvlan"}}), false, none),
        (json!({}), true, (vec!["10.1.0.7/32 700"], vec![])),
    ] {
        let expected = (rules, gateways);
        let (rules, gateways) = decide(parameters.clone(), has_rules);
        let told = (
            rules.iter().map(String::as_str).collect(),
            gateways.iter().map(String::as_str).collect(),
        );
        assert_eq!(expected, told, "{parameters}");
    }
}

#[test]
fn virtual_function_settings_record_the_former_values() {
    let former = VirtualFunctionConfig { vlan: Some(0), ..VirtualFunctionConfig::default() };
    let decide = |seen: Option<(String, VirtualFunctionConfig)>, device: AllocatedDevice| {
        let (mut inventory, links) = (inventory(), links());
        let physical = "0103:00:00.7".parse().expect("an address");
        let function = FunctionFacts { physical, index: 3, seen };
        inventory.devices.get_mut("eth-0").expect("it is there").function = Some(function);
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        plan(&claim("u-1", vec![device]), &facts)
    };
    let seen = Some(("rail9".to_owned(), former));
    let asks = |name: &str| device(name, Some(json!({"virtualFunction": {"vlan": 7}})));
    let plan = decide(seen.clone(), asks("eth-0")).expect("possible");
    let function = plan.functions().next().expect("one");
    assert_eq!((function.physical.as_str(), function.index), ("0103:00:00.7", 3));
    assert_eq!(
        (function.asked.vlan, function.former, function.link.as_str()),
        (Some(7), former, "rail9")
    );
    let guid = || Some(json!({"virtualFunction": {"portGuid": "0e:42:a1:03:00:65:4c:3f"}}));
    let has_one = VirtualFunctionConfig { port_guid: Guid::new(7), ..former };
    let plan = decide(Some(("pf".to_owned(), has_one)), device("eth-0", guid())).expect("possible");
    assert_eq!(plan.functions().next().expect("one").former.port_guid, Guid::new(7));
    let nothing = device("eth-0", Some(json!({"virtualFunction": {}})));
    assert!(decide(seen.clone(), nothing).expect("possible").functions().next().is_none());
    let monitor = AllocatedDevice { admin_access: true, ..asks("eth-0") };
    assert!(decide(seen.clone(), monitor).expect("possible").functions().next().is_none());
    let share = AllocatedDevice { share_id: Some("s-1".to_owned()), ..asks("eth-0") };
    let refusals = [
        decide(seen.clone(), asks("eth-1")),
        decide(None, asks("eth-0")),
        decide(seen.clone(), device("eth-0", guid())),
        decide(seen, share),
    ];
    let refusals = refusals.map(|refused| refused.expect_err("refused").to_string());
    insta::assert_snapshot!(refusals.join("\n"), @"
    device `eth-1` is not a virtual function, but its configuration sets `virtualFunction`
    device `eth-0`: no interface of its physical function `0103:00:00.7` in the host's network namespace manages virtual functions, so `virtualFunction` cannot be set
    device `eth-0`: `virtualFunction.portGuid` cannot be set, because physical function `0103:00:00.7` reports no port GUID of the device that could be restored later; set one first, as the driver does for virtual functions that it creates
    device `eth-0` is shared, but `virtualFunction` needs the whole device; remove it, or request a whole device
    ");
}

#[test]
fn a_virtual_function_has_at_most_the_mtu_of_its_physical_function() {
    let decide = |mtu: u32| {
        let (mut inventory, links) = (inventory(), links());
        inventory.devices.get_mut("eth-0").expect("it is there").physical_mtu = Some(4200);
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: POLICY,
            boot_id: None,
            cloud_nics: &[],
        };
        let parameters = Some(json!({"interface": {"mtu": mtu}}));
        plan(&claim("u-1", vec![device("eth-0", parameters)]), &facts)
    };
    decide(4200).expect("as large as it");
    insta::assert_snapshot!(
        decide(9000).expect_err("refused"),
        @"device `eth-0` is a virtual function: `interface.mtu` 9000 is larger than the MTU 4200 of its physical function; lower it, or raise the physical function's"
    );
}
