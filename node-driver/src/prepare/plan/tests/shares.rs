//! What several claims, or several pods, get of one NIC.

use super::*;

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

/// A namespace's label alone allows it, and whoever may label the namespace can set that
/// (kubernetes/kubernetes issue 141293).
#[test]
fn admin_access_takes_no_interface_and_no_address() {
    let monitor = |device_name: &str| {
        let device = AllocatedDevice {
            admin_access: true,
            ..device(device_name, Some(address("macvlan", "10.9.0.1/24")))
        };
        decide(&claim("u-2", vec![device]), &[]).expect("monitoring")
    };
    for name in ["eth-0", "ib-0"] {
        let plan = monitor(name);
        assert_eq!(plan.devices.len(), 1);
        assert_eq!(plan.devices[0].link, None, "{name}");
        assert!(!plan.devices[0].moves() && plan.functions().next().is_none(), "{name}");
    }
}

pub(super) fn share(uid: &str, share: &str, parameters: Option<Value>) -> AllocatedClaim {
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
