//! The order of the reasons, and what is given.

use super::*;
use crate::health::Problem;
use crate::held::Holding;
use crate::lag::Lag;
use crate::live::{function, rdma_device};
use crate::network::Interface;
use crate::nic::Kept;
use crate::sharing::Sharing;
use std::collections::BTreeSet;
use topology_graph::LinkLayer;

fn rules() -> Rules {
    Rules {
        taints: Some(TaintArgs::default()),
        one_function_per_port: true,
        something_to_give: true,
        ..Rules::default()
    }
}

fn word(nic: &NicState) -> String {
    match judge(nic, &rules()) {
        Verdict::Given(_) => "given".to_owned(),
        Verdict::Withheld(reason) => reason.word().to_owned(),
    }
}

/// A reason, and what takes it away.
type Step = (&'static str, fn(&mut NicState));

/// A NIC to which every reason applies; each step takes the first one away.
#[test]
fn the_first_reason_of_the_page_applies() {
    let first = "0000:01:00.0".parse().unwrap();
    let bond = Interface { name: "bond0".to_owned(), ..Interface::default() };
    let mut nic = NicState {
        function: Some(function("0000:01:00.1")),
        lag: Some(Lag { bond, first, functions: BTreeSet::from([first]) }),
        kept: Some(Kept { reason: Withheld::Uplink, interface: None }),
        ..NicState::default()
    };
    nic.now.is_not_ready = true;
    nic.now.is_dropped = true;
    nic.now.other_function = Some(OtherFunction::Virtual("pci-0000-01-10-0".to_owned()));
    nic.now.driver_is_loading = true;
    let steps: [Step; 10] = [
        ("no-driver", |nic| {
            nic.function.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
        }),
        ("reserved", |nic| nic.function = Some(function("0000:01:00.1"))),
        ("uplink", |nic| nic.kept = None),
        ("port-of-bond", |nic| nic.lag = None),
        ("not-ready", |nic| nic.now.is_not_ready = false),
        ("filter", |nic| nic.now.is_dropped = false),
        ("nothing-to-give", |nic| nic.now.holding = Some(Holding::default())),
        ("has-virtual-functions", |nic| {
            nic.now.other_function = Some(OtherFunction::Physical("pci-0000-01-00-0".to_owned()));
        }),
        ("physical-function-in-pod", |nic| nic.now.other_function = None),
        ("vendor-driver", |nic| nic.now.driver_is_loading = false),
    ];
    nic.function.as_mut().unwrap().driver = None;
    for (expected, end) in steps {
        assert_eq!(word(&nic), expected);
        end(&mut nic);
    }
    assert_eq!(word(&nic), "given");
}

#[test]
fn what_is_given() {
    let mut rdma = rdma_device("mlx5_0", LinkLayer::InfiniBand, ["uverbs0", "umad0", "issm0"]);
    rdma.ports[0].rate_megabits = Some(400_000);
    let mut nic =
        NicState { role: Some(NicRole::Compute), rdma: Some(rdma), ..NicState::default() };
    nic.now.is_shared = true;
    nic.now.problems = BTreeSet::from([Problem::PortDown]);
    nic.now.driver_is_awaited = true;
    let sharing = SharingArgs { sharing: Sharing::Bandwidth, ..SharingArgs::default() };
    let given = |bind_nics, taints| {
        let rules = Rules { bind_nics, taints, sharing: sharing.clone(), ..Rules::default() };
        match judge(&nic, &rules) {
            Verdict::Given(given) => given,
            Verdict::Withheld(reason) => panic!("{reason}"),
        }
    };
    let named = given(BindNics::Named, Some(TaintArgs::default()));
    assert_eq!(named.sharing, Some(Shares { bandwidth: Some(400), claims: None }));
    let taints: Vec<_> =
        named.taints.iter().map(|it| format!("{}:{}", it.key, it.effect)).collect();
    assert_eq!(taints, ["dranet.io/port-down:NoSchedule", "dranet.io/vendor-driver:NoExecute"]);
    assert!(!named.late);
    let late = given(BindNics::Late, None);
    assert_eq!((late.sharing, late.late, late.taints.len()), (None, true, 0));
}
