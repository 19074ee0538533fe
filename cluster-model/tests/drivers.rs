//! The operator's file of drivers, and the table that it changes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::drivers::{Drivers, DriversFile, InUse, accelerators, named_by_file, set};
use cluster_model::nic_drivers::{GraphName, NameSource, Rdma};
use cluster_model::published_device::address_in_name;
use cluster_model::{gpu_drivers, nic_drivers};
use topology_graph::{Accelerator, PciClass};

const FILE: &str = r#"
accelerators:
- driver: gaudi.intel.com
  class: gaudi.intel.com
  pciVendor: "1da3"
  pciClasses: ["1200"]
  address: deviceName
  extendedResources: [intel.com/gaudi]
- driver: gpu.nvidia.com
  class: gpus
  pciVendor: 10de
  pciClasses: ["0302"]
  whole: {attribute: gpu.nvidia.com/type, value: whole}
  uuidAttribute: gpu.nvidia.com/uuid
  address: {attribute: gpu.nvidia.com/bdf}
  part:
    class: parts
    value: slice
    profileAttribute: gpu.nvidia.com/size
nics:
- driver: nic.example.com
  classes: [fast.example.com, slow.example.com]
  rdma: {attribute: nic.example.com/kind, values: [roce]}
  address: {rdmaDeviceAttribute: nic.example.com/rdmaDevice}
  interfaceAttribute: nic.example.com/netdev
- driver: interface.example.com
  classes: [interface.example.com]
  address: interfaceName
"#;

fn parsed(text: &str) -> Drivers {
    Drivers::with(DriversFile::parse(text).unwrap())
}

fn error(text: &str) -> String {
    let error = DriversFile::parse(text).unwrap_err();
    error.to_string().lines().next().unwrap().to_owned()
}

#[test]
fn entries_are_added_and_replace_built_in_drivers_of_their_name() {
    assert!(set(&parsed(FILE)).is_ok());
    assert!(set(&parsed(FILE)).is_ok(), "the same table again");
    assert_eq!(set(&Drivers::default()), Err(InUse), "another table");
    let names: Vec<_> = gpu_drivers::all().iter().map(|it| it.driver).collect();
    assert_eq!(names, ["gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com"]);
    let nvidia = gpu_drivers::by_name("gpu.nvidia.com").unwrap();
    assert_eq!((nvidia.class, nvidia.gpu_kind), ("gpus", "whole"));
    assert_eq!(nvidia.address_attribute, Some("gpu.nvidia.com/bdf"));
    let gaudi = gpu_drivers::by_pci_vendor(0x1da3).unwrap();
    assert_eq!((gaudi.driver, gaudi.is_named_by_address), ("gaudi.intel.com", true));
    assert_eq!(gaudi.extended_resources, ["intel.com/gaudi"]);
    let parts: Vec<_> =
        gpu_drivers::parts().iter().map(|it| (it.driver, it.class, it.gpu_kind)).collect();
    assert_eq!(
        parts,
        [("gpu.amd.com", "gpu.amd.com", "amdgpu-partition"), ("gpu.nvidia.com", "parts", "slice")]
    );
    let nic = nic_drivers::by_name("nic.example.com").unwrap();
    assert_eq!(nic.rdma, Rdma::OneOf("nic.example.com/kind", &["roce"]));
    let rdma_device = NameSource::Attribute("nic.example.com/rdmaDevice");
    assert_eq!(nic.graph_name, Some(GraphName::RdmaDevice(rdma_device)));
    let by_interface = nic_drivers::by_name("interface.example.com").unwrap();
    assert_eq!(by_interface.graph_name, Some(GraphName::Interface(NameSource::Device)));
    assert_eq!(nic.classes, ["fast.example.com", "slow.example.com"]);
    assert!(nic_drivers::all()[0].is_ours() && !nic.has_roles);
    let class: PciClass = "1200".parse().unwrap();
    assert_eq!(accelerators()[0], Accelerator { vendor: 0x1da3, class });
    assert_eq!(
        named_by_file(),
        ["gaudi.intel.com", "gpu.nvidia.com", "nic.example.com", "interface.example.com"]
    );
}

#[test]
fn an_empty_file_changes_nothing_and_json_is_read_too() {
    for text in ["", "# nothing yet\n", "accelerators: []\nnics: []\n", "{}"] {
        assert_eq!(parsed(text), Drivers::default(), "{text:?}");
    }
    let json = r#"{"nics": [{"driver": "a.example.com", "classes": ["a"]}]}"#;
    assert_ne!(parsed(json), Drivers::default());
}

#[test]
fn a_wrong_file_is_refused_with_the_line_and_what_is_allowed() {
    let entry = "accelerators:\n- driver: a.example.com\n  class: a\n  pciVendor: \"1da3\"\n";
    let classes = "  pciClasses: [\"1200\"]\n";
    let nic = "nics:\n- driver: a.example.com\n  classes: [a]\n";
    for (text, expected) in [
        (
            format!("{entry}{classes}  uuid: x\n"),
            ["line 6", "unknown field `uuid`", "uuidAttribute"],
        ),
        (
            format!("gpus: []\n{entry}{classes}"),
            ["line 1", "unknown field `gpus`", "accelerators, nics"],
        ),
        (entry.to_owned(), ["line 4", "missing field", "pciClasses"]),
        (entry.replace("1da3", "gaudi") + classes, ["line 4", "`gaudi`", "4 hexadecimal digits"]),
        (format!("{entry}  pciClasses: [\"12000\"]\n"), ["line 5", "`12000`", "2, 4 or 6"]),
        (
            format!("{entry}  pciClasses: []\n"),
            ["line 2", "a.example.com", "`pciClasses` is empty"],
        ),
        (format!("{entry}{classes}  uuidAttribute: uuid\n"), ["line 6", "`uuid`", "DOMAIN/NAME"]),
        (format!("{entry}{classes}  address: name\n"), ["line 6", "`name`", "deviceName"]),
        (
            format!("{entry}{classes}  address: rdmaDeviceName\n"),
            ["line 2", "only NICs", "deviceName"],
        ),
        (
            format!("{entry}{classes}  part: {{class: a, value: b, profileAttribute: a.b/c}}\n"),
            ["line 2", "`part` needs `whole`", "parts from whole"],
        ),
        (format!("{entry}{classes}{nic}"), ["line 7", "a.example.com", "line 2 has an entry"]),
        (nic.replace("a.example.com", "dra.net"), ["line 2", "`dra.net`", "cannot be replaced"]),
        (nic.replace("[a]", "[]"), ["line 2", "a.example.com", "`classes` is empty"]),
        (nic.replace("a.example.com", "A_b"), ["line 2", "`A_b`", "DNS name"]),
    ] {
        let error = error(&text);
        for part in expected {
            assert!(error.contains(part), "`{part}` is not in `{error}` for\n{text}");
        }
    }
}

#[test]
fn the_name_of_a_device_has_its_address() {
    for (name, expected) in [
        ("0000-4d-00-0-0x1060", Some("0000:4d:00.0")),
        ("pci-0101-00-00-0", Some("0101:00:00.0")),
        ("10000-e1-00-1", Some("10000:e1:00.1")),
        ("npu-0-0", None),
        ("gpu-0", None),
        ("0000-4d-00-9", None),
    ] {
        let found = address_in_name(name).map(|address| address.to_string());
        assert_eq!(found.as_deref(), expected, "{name}");
    }
}

/// The schema that editors use, and that with which the chart checks its value `drivers`.
#[cfg(feature = "crd")]
#[test]
fn the_schema_is_documented_and_in_the_chart() {
    use serde_json::Value;
    use std::fs;

    let mut schema = cluster_model::drivers::schema().to_value();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let page = "../docs/reference/schemas/drivers.json";
    if fs::read_to_string(page).unwrap_or_default() != text {
        let made = concat!(env!("CARGO_TARGET_TMPDIR"), "/drivers.json");
        fs::write(made, &text).unwrap();
        panic!("`docs/reference/schemas/drivers.json` should be `{made}`");
    }
    let chart = fs::read_to_string("../deploy/chart/values.schema.json").unwrap();
    let chart: Value = serde_json::from_str(&chart).unwrap();
    for list in ["accelerators", "nics"] {
        let items = format!("/properties/drivers/properties/{list}/items");
        let expected = schema["properties"][list]["items"].take();
        assert_eq!(
            chart.pointer(&items),
            Some(&expected),
            "{list} in deploy/chart/values.schema.json"
        );
    }
}
