//! Snapshots of explanations.
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fmt::Write as _;

use dra_allocator::reasons::reasons;
use dra_allocator::{Claim, Inventory, Limits, MinorVersion, Settings, explain};

/// A node with two cells: two GPUs and a NIC in each, and a tainted NIC of a third kind.
const SLICES: &[&str] = &[
    "
metadata: {name: gpus}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: g0, attributes: {model: {string: h200}, std.io/numa: {int: 0}}}
  - {name: g1, attributes: {model: {string: h200}, std.io/numa: {int: 1}}}
",
    "
metadata: {name: nics}
spec:
  driver: nic.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: n0, attributes: {std.io/numa: {int: 0}}}
  - {name: n1, attributes: {std.io/numa: {int: 1}}, taints: [{key: link, value: down, effect: NoSchedule}]}
",
];

const CLASSES: &[&str] = &[
    "{metadata: {name: gpu}, spec: {selectors: [{cel: {expression: 'device.driver == \"gpu.example.com\"'}}]}}",
    "{metadata: {name: b200}, spec: {selectors: [{cel: {expression: 'device.attributes[\"gpu.example.com\"].?model.orValue(\"\") == \"b200\"'}}]}}",
    "{metadata: {name: nic}, spec: {selectors: [{cel: {expression: 'device.driver == \"nic.example.com\"'}}]}}",
];

/// Another pod's claim, which holds g0.
const HOLDER: &str = "
metadata: {name: other, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
status:
  allocation:
    devices: {results: [{request: r, driver: gpu.example.com, pool: n1, device: g0}]}
";

fn inventory() -> Inventory {
    let mut inventory = Inventory::new();
    for slice in SLICES {
        inventory.apply_slice(&serde_saphyr::from_str(slice).unwrap()).unwrap();
    }
    for class in CLASSES {
        inventory.apply_class(&serde_saphyr::from_str(class).unwrap()).unwrap();
    }
    inventory.apply_claim(&serde_saphyr::from_str(HOLDER).unwrap()).unwrap();
    inventory
}

fn gpu_and_nic(constraint: &str) -> String {
    format!(
        "[{{name: gpu, exactly: {{deviceClassName: gpu}}}}, \
         {{name: nic, exactly: {{deviceClassName: nic}}}}], constraints: [{constraint}]"
    )
}

#[test]
fn explanation_texts() {
    let cases = [
        ("all taken", "[{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]".to_owned()),
        (
            "selector",
            "[{name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: \
             'device.attributes[\"gpu.example.com\"].?vendor.orValue(\"\") == \"x\"'}}]}}]"
                .to_owned(),
        ),
        (
            "part of a selector",
            "[{name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: \
             'device.driver == \"gpu.example.com\" && \
             device.attributes[\"gpu.example.com\"].?degraded.orValue(false) == false && \
             device.attributes[\"std.io\"].numa == 2'}}]}}]"
                .to_owned(),
        ),
        (
            "an error on a device",
            "[{name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: \
             'device.attributes[\"gpu.example.com\"].vendor == \"x\"'}}]}}]"
                .to_owned(),
        ),
        ("class selector", "[{name: gpu, exactly: {deviceClassName: b200}}]".to_owned()),
        (
            "an invalid selector",
            "[{name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: \
             'device.model =='}}]}}]"
                .to_owned(),
        ),
        (
            "capacity",
            "[{name: gpu, exactly: {deviceClassName: gpu, capacity: {requests: {mem: 1Gi}}}}]"
                .to_owned(),
        ),
        (
            "first available",
            "[{name: gpu, firstAvailable: [{name: new, deviceClassName: b200}, \
             {name: two, deviceClassName: gpu, count: 2}]}]"
                .to_owned(),
        ),
        ("taint", "[{name: nic, exactly: {deviceClassName: nic, count: 2}}]".to_owned()),
        ("constraint", gpu_and_nic("{matchAttribute: std.io/numa}")),
        ("no class", "[{name: gpu, exactly: {deviceClassName: tpu}}]".to_owned()),
        (
            "together",
            "[{name: a, exactly: {deviceClassName: gpu}}, {name: b, exactly: {deviceClassName: gpu}}]"
                .to_owned(),
        ),
    ];
    let inventory = inventory();
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    let mut text = String::new();
    for (name, requests) in cases {
        let claim =
            format!("{{metadata: {{name: c}}, spec: {{devices: {{requests: {requests}}}}}}}");
        let claim = Claim::try_from(&serde_saphyr::from_str(&claim).unwrap()).unwrap();
        let state = inventory.state();
        let limits = Limits::steps(10_000);
        let explanation = explain(&inventory, "n1", &[claim], state, &settings, limits).unwrap();
        writeln!(text, "{name}:").unwrap();
        for reason in reasons(&explanation.requests) {
            writeln!(text, "  {reason}").unwrap();
        }
        for relaxation in explanation.relaxations {
            writeln!(text, "  would fit: {}", relaxation.text).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}
