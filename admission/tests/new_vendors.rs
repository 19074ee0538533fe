//! Vendors that are no more than an entry of the drivers file, with the entries that the
//! documentation gives.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster::{A3, Gpus, HGX, Machine, cluster, pod};
use cluster_model::drivers::{Drivers, DriversFile, set};
use cluster_model::node_devices::{NodeDevices, address_on};
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{Claim, ClaimName, Device, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use topology_graph::{PathKind, PciAddress, Topology};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/drivers.md");

/// A worked example of the page.
fn example(name: &str) -> DriversFile {
    let page = fs::read_to_string(PAGE).unwrap();
    let (_, rest) = page.split_once(&format!("<!-- example: {name} -->\n```text\n")).unwrap();
    DriversFile::parse(rest.split_once("```").unwrap().0).unwrap()
}

/// Adds both examples to the table of this process, which all tests share.
fn use_examples() {
    let (mut file, other) = (example("gaudi"), example("ascend"));
    file.accelerators.extend(other.accelerators);
    set(&Drivers::with(file)).unwrap();
}

fn planned(view: &ClusterView, resource: &str, gpus: u32, nics: &str) -> Result<Plan, String> {
    let pod = pod(resource, gpus, &[("aligned-nics", nics)]);
    let verdict = admit(&pod, view, &Policy::default()).map_err(|error| error.to_string())?;
    Ok(verdict.planned.unwrap().plan)
}

/// The accelerators and NICs that the scheduler would allocate on the node.
fn allocated(view: &ClusterView, plan: &Plan) -> [Vec<PciAddress>; 2] {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let inventory = view.inventory();
    let (state, steps) = (inventory.state(), Limits::steps(10_000));
    let found = allocate(inventory, "node-0", &[claim], state, view.settings(), steps);
    let Outcome::Allocated(claims) = found.outcome else {
        panic!("{:?}: {}", found.outcome, serde_json::to_string_pretty(&plan.claim).unwrap());
    };
    let devices = NodeDevices::new(view, "node-0").unwrap();
    let given = |devices: &BTreeMap<PciAddress, &Device>| {
        let is_given = |device: &Device| {
            claims.iter().flat_map(|it| &it.results).any(|it| it.device == *device.id())
        };
        devices.iter().filter(|(_, it)| is_given(it)).map(|(address, _)| *address).collect()
    };
    [given(&devices.gpus), given(&devices.nics)]
}

/// The class of Intel's chart.
fn class() -> DeviceClass {
    let expression = r#"device.driver == "gaudi.intel.com""#;
    let class = json!({ "metadata": { "name": "gaudi.intel.com" },
                        "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
    serde_json::from_value(class).unwrap()
}

/// Graph, published devices, plan and allocation of a machine with eight Gaudi.
#[test]
fn gaudi_is_aligned_by_the_entry_of_the_page() {
    use_examples();
    // A link of one NIC of the first machine is degraded, so that no pod gets all eight.
    for (machine, most) in [(HGX, 4), (A3, 8)] {
        let mut view = cluster(&[machine.with(Gpus::Gaudi)]);
        view.apply(class()).unwrap();
        let topology = view.topology("node-0").unwrap();
        let vendors: Vec<u16> = topology.gpus().iter().map(|gpu| gpu.vendor).collect();
        assert_eq!(vendors, [0x1da3; 8]);
        assert_eq!(topology.pairs().len(), 8, "each has a NIC");
        let devices = NodeDevices::new(&view, "node-0").unwrap();
        assert_eq!(devices.gpus.len(), 8, "each published device has its place in the graph");
        for gpu in devices.gpus.values() {
            assert!(address_on(&view, "node-0", gpu).is_some());
        }
        for (gpus, nics) in [(1, "1"), (2, "per-gpu"), (4, "per-gpu"), (most, "per-gpu")] {
            let plan = planned(&view, "intel.com/gaudi", gpus, nics).unwrap();
            let [gpu, nic] = allocated(&view, &plan);
            assert_eq!((gpu.len(), nic.len()), (gpus as usize, gpus as usize));
            for gpu in gpu {
                let nearest = nic.iter().map(|nic| topology.path(gpu, *nic)).min().unwrap();
                assert!(nearest <= PathKind::Pxb, "{} {gpu}: {nearest}", machine.fixture);
            }
        }
    }
}

/// The device plugin of Ascend: a pod that takes all accelerators gets the NICs near them.
#[test]
fn ascend_is_aligned_by_the_entry_of_the_page() {
    use_examples();
    let view = cluster(&[A3.with(Gpus::Ascend)]);
    let topology = view.topology("node-0").unwrap();
    assert_eq!(topology.gpus().len(), 8);
    let resource = "huawei.com/Ascend910";
    let plan = planned(&view, resource, 8, "per-gpu").unwrap();
    assert_eq!(plan.driver.driver, "ascend.project-hami.io");
    let [gpus, nics] = allocated(&view, &plan);
    assert!(gpus.is_empty(), "the device plugin gives them");
    assert_eq!(nics.len(), 8);
    for gpu in topology.gpus() {
        let nearest = nics.iter().map(|nic| topology.path(gpu.address, *nic)).min().unwrap();
        assert!(nearest <= PathKind::Pxb, "{}: {nearest}", gpu.address);
    }
    let denial = planned(&view, resource, 1, "1").unwrap_err();
    assert!(denial.contains("set a limit of 8"), "{denial}");
    assert!(denial.contains("ascend.project-hami.io"), "{denial}");
}

/// What no table names is no accelerator.
#[test]
fn a_vendor_without_an_entry_is_in_no_graph() {
    use_examples();
    let machine = Machine { gpus: Gpus::Ascend, ..HGX };
    let snapshot = machine.snapshot();
    assert!(Topology::build(&snapshot, None).0.gpus().is_empty());
    let known = cluster_model::drivers::accelerators();
    assert_eq!(Topology::build_with(&snapshot, None, known).0.gpus().len(), 8);
    let none = pod("example.com/npu", 1, &[("aligned-nics", "1")]);
    assert!(admit(&none, &cluster(&[machine]), &Policy::default()).is_err());
}
