//! What `doctor` finds about the drivers file, and about drivers that no table has. The file is read
//! once for a process, so all tests here have the same.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

const FILE: &str = r#"
accelerators:
- {driver: absent.example.com, class: a, pciVendor: "1da3", pciClasses: ["1200"]}
- {driver: plugin.example.com, class: a, pciVendor: "1da3", pciClasses: ["1200"],
   extendedResources: [example.com/npu]}
- {driver: kindless.example.com, class: every.example.com, pciVendor: "1da3", pciClasses: ["1200"],
   whole: {attribute: kindless.example.com/type, value: npu}}
- {driver: placeless.example.com, class: every.example.com, pciVendor: "1da3",
   pciClasses: ["1200"]}
- {driver: classless.example.com, class: wrong.example.com, pciVendor: "1da3",
   pciClasses: ["1200"]}
- {driver: fine.example.com, class: every.example.com, pciVendor: "1da3", pciClasses: ["1200"],
   address: deviceName, extendedResources: [intel.com/gaudi]}
nics:
- {driver: slow.example.com, classes: [every.example.com],
   rdma: {attribute: slow.example.com/rdma}}
"#;

fn slice(driver: &str, device: &str, attributes: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": { "name": format!("{NODE}-{driver}") },
        "spec": {
            "driver": driver, "nodeName": NODE,
            "pool": { "name": NODE, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": device, "attributes": attributes }],
        },
    })
}

fn class(name: &str, expression: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] },
    })
}

/// The findings about drivers for the example with these objects: place and message.
fn findings(more: Vec<Value>) -> Vec<String> {
    let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
    for node in objects.iter_mut().filter(|it| it["kind"] == "Node") {
        for amounts in ["allocatable", "capacity"] {
            node["status"][amounts]["example.com/npu"] = "8".into();
            node["status"][amounts]["intel.com/gaudi"] = "8".into();
        }
    }
    objects.extend(more);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    fs::write(path("cluster.json"), list.to_string()).unwrap();
    fs::write(path("drivers.yaml"), FILE).unwrap();
    let (cluster, drivers) = (path("cluster.json"), path("drivers.yaml"));
    let args =
        ["kubectl-dranet", "doctor", "--snapshot", &cluster, "--drivers", &drivers, "-o", "json"];
    let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    let output: Value = serde_json::from_str(&output.text).unwrap();
    let text = |it: &Value| {
        let part = |name: &str| it[name].as_str().unwrap().to_owned();
        format!("{}: {} {}", part("severity"), part("place"), part("message"))
    };
    output["findings"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn each_wrong_entry_has_a_finding_with_its_remedy() {
    let string = |text: &str| json!({ "string": text });
    let found = findings(vec![
        class("every.example.com", r#"device.driver.endsWith(".example.com")"#),
        slice("kindless.example.com", "a", &json!({ "type": string("card") })),
        slice("placeless.example.com", "a", &json!({ "bdf": string("0008:06:00.0") })),
        slice("classless.example.com", "0008-06-00-0", &json!({})),
        slice("fine.example.com", "0008-06-00-0-0x1060", &json!({})),
        slice("slow.example.com", "a", &json!({ "rdma": { "bool": false } })),
    ]);
    let found: Vec<_> = found.iter().filter(|it| it.contains("drivers file")).collect();
    let expected = [
        ("absent", "publishes no device; check whether it runs"),
        (
            "kindless",
            "type = npu, so none is a whole accelerator; correct `whole`; the values are card",
        ),
        ("placeless", "set `address: {attribute: placeless.example.com/bdf}`"),
        (
            "classless",
            "no DeviceClass wrong.example.com, by which claims request it; DeviceClass \
                       every.example.com selects its devices: name it in the entry",
        ),
        ("slow", "none of its 1 devices can do RDMA by `rdma`"),
    ];
    for (driver, text) in expected {
        let place = format!("warning: drivers file: driver {driver}.example.com ");
        let of_driver: Vec<_> = found.iter().filter(|it| it.starts_with(&place)).collect();
        assert_eq!(of_driver.len(), 1, "{driver}: {found:#?}");
        assert!(of_driver[0].contains(text), "{text}: {}", of_driver[0]);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn drivers_without_an_entry_are_named_with_the_entry_that_they_need() {
    let bus = |address: &str| json!({ "resource.kubernetes.io/pciBusID": { "string": address } });
    let found = findings(vec![
        class("npu.example.org", r#"device.driver == "npu.example.org""#),
        slice("npu.example.org", "a", &bus("0008:06:00.0")),
        slice("wire.example.org", "a", &bus("0101:00:00.0")),
        slice("other.example.org", "a", &bus("0000:77:00.0")),
        slice("cpu.example.org", "a", &json!({})),
    ]);
    let of = |driver: &str| {
        let place = format!(": driver {driver}.example.org ");
        found.iter().filter(|it| it.contains(&place)).cloned().collect::<Vec<_>>()
    };
    let expect = |driver: &str, severity: &str, text: &str| {
        let found = of(driver);
        assert_eq!(found.len(), 1, "{driver}: {found:#?}");
        assert!(found[0].starts_with(severity) && found[0].contains(text), "{found:#?}");
    };
    expect(
        "npu",
        "warning",
        "`accelerators: [{driver: npu.example.org, class: npu.example.org, pciVendor: \"10de\", \
         pciClasses: [...]}]`",
    );
    expect("wire", "warning", "`nics: [{driver: wire.example.org, classes: [CLASS]}]`");
    expect("other", "note", "that no graph knows");
    assert!(of("cpu").is_empty());
    // Its extended resource has the prefix of NICs of a device plugin.
    assert!(!found.iter().any(|it| it.contains("intel.com/gaudi by a device plugin, and NICs")));
}
