//! The names, addresses, routes and settings of interfaces.

use super::shares::share;
use super::*;

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
        links.get_mut(link).expect("an interface").name = name.into();
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
        let rail = links.get_mut("rail0").expect("it is there");
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
        let rail = links.get_mut("rail0").expect("it is there");
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
        inventory.functions.insert("eth-0".to_owned(), function);
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
        let physical = function("0103:00:00.7");
        for function in inventory.nics.iter_mut().filter(|nic| nic.name == "eth-0") {
            let function = function.function.as_mut().expect("it has one");
            function.physical_function = Some(physical.address);
        }
        let interface = Some(Interface { mtu: Some(4200), ..Interface::default() });
        let function = Some(physical);
        inventory.nics.push(NicState { function, interface, ..NicState::default() });
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
