//! Which plans are valid after a boot, and what follows.

use super::*;
use crate::model::checkpoint::Record;
use crate::model::plan::CharDevice;
use publication::live::{function, rdma_device};
use publication::nic::NicState;
use serde_json::json;
use topology_graph::LinkLayer;

fn uverbs(number: u32) -> CharDevice {
    CharDevice { name: format!("uverbs{number}"), major: 231, minor: 192 + number }
}

/// A plan of the NIC at `0101:00:00.0` with this RDMA device.
fn plan(boot: Option<&str>, number: u32) -> Plan {
    let rdma = json!({"name": format!("mlx5_{number}"), "ports": [1], "chars": [uverbs(number)]});
    let device = json!({
        "request": "nic", "pool": "n", "device": "pci-0101-00-00-0",
        "pciBusId": "0101:00:00.0", "rdma": rdma, "link": null,
    });
    let claim = json!({"namespace": "team", "name": "c", "uid": "u-1"});
    let plan = json!({"claim": claim, "pods": [], "devices": [device], "rdmaCm": null,
        "others": [], "bootId": boot});
    serde_json::from_value(plan).unwrap()
}

/// A machine on which that NIC has this RDMA device.
fn inventory(number: u32) -> Inventory {
    let char = uverbs(number);
    let name = format!("mlx5_{number}");
    let rdma = rdma_device(&name, LinkLayer::InfiniBand, [&char.name, "umad0", "issm0"]);
    let nic = NicState {
        name: "pci-0101-00-00-0".to_owned(),
        function: Some(function("0101:00:00.0")),
        rdma: Some(rdma),
        ..NicState::default()
    };
    let chars = [(char.name.clone(), char)].into();
    Inventory { nics: vec![nic], chars, ..Inventory::default() }
}

#[test]
fn a_plan_is_valid_for_its_boot() {
    let (first, second) = (Some("boot-1"), Some("boot-2"));
    for (what, planned, now, is_attached, number, expected) in [
        ("this boot", first, first, false, 0, true),
        ("this boot, regardless of the machine's devices", first, first, false, 1, true),
        ("another boot with the same numbers", first, second, false, 0, false),
        ("another boot, and a record that outlived it", first, second, true, 0, false),
        ("the plan has no boot ID, and all is as planned", None, second, false, 0, true),
        ("the plan has no boot ID, and another NIC has the name", None, second, false, 1, false),
        ("the plan has no boot ID, and its pod runs", None, second, true, 1, true),
        ("the machine has no boot ID", first, None, false, 0, true),
        ("the machine has no boot ID, and other numbers", first, None, false, 1, false),
    ] {
        let holds = holds(&plan(planned, 0), now, is_attached, &inventory(number));
        assert_eq!(holds, expected, "{what}");
    }
    let gone = Inventory::default();
    assert!(!holds(&plan(None, 0), None, false, &gone), "the NIC is not there");
}

#[test]
fn stale_claims_are_forgotten_in_any_phase() {
    let uids = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect::<BTreeSet<_>>();
    let phases = [("a", Phase::Prepared), ("b", Phase::Preparing), ("c", Phase::Unpreparing)];
    let record = |(uid, phase): (&str, Phase)| {
        (uid.to_owned(), Record { phase, plan: plan(Some("boot-1"), 0) })
    };
    let checkpoint = Checkpoint { claims: phases.map(record).into(), ..Checkpoint::default() };
    let files = uids(&["a", "z"]);
    let forget = |uid: &str| Step::Forget(uid.to_owned());
    assert_eq!(
        steps(&checkpoint, &uids(&["a", "b", "c"]), &uids(&[]), &files),
        [forget("a"), forget("b"), forget("c"), Step::Remove("z".to_owned())]
    );
    assert_eq!(
        steps(&checkpoint, &uids(&[]), &uids(&[]), &files),
        [
            Step::Repair("a".to_owned()),
            Step::Undo("b".to_owned()),
            Step::Finish("c".to_owned()),
            Step::Remove("z".to_owned())
        ]
    );
}
