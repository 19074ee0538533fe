//! Roles on the machines of the crate, and on changed ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::fixture::{MACHINES, machine, plant, vm_size};
use crate::{
    HostRoot, NicRole, Overlay, PciAddress, PortState, RdmaDevice, Snapshot, Topology, read,
};

fn snapshot(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    read(&HostRoot::at(root.path())).unwrap()
}

fn topology(text: &str) -> Topology {
    Topology::build(&snapshot(text), None).0
}

fn of_machine(name: &str) -> Topology {
    topology(machine(name).unwrap())
}

/// The addresses of the NICs with this role, without domain `0000`.
fn with_role(topology: &Topology, role: NicRole) -> Vec<String> {
    let nics = topology.nics().iter().filter(|nic| nic.role == role);
    nics.map(|nic| nic.address.to_string().trim_start_matches("0000:").to_owned()).collect()
}

fn compute(topology: &Topology) -> Vec<String> {
    with_role(topology, NicRole::Compute)
}

/// Each GPU with the NICs of its pairs.
fn partners(topology: &Topology) -> BTreeMap<String, Vec<String>> {
    let mut partners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in topology.pairs() {
        partners.entry(pair.gpu.to_string()).or_default().push(pair.nic.to_string());
    }
    partners
}

/// The text with every line below these headers changed.
fn change(text: &str, functions: &[&str], from: &str, to: &str) -> String {
    let mut is_in = false;
    let mut changed = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            is_in = functions.iter().any(|function| line.ends_with(&format!("{function}]")));
        }
        let line = if is_in { line.replace(from, to) } else { line.to_owned() };
        changed.push_str(&line);
        changed.push('\n');
    }
    assert!(changed != text || from == to, "{from}");
    changed
}

const H100_COMPUTE: [&str; 8] =
    ["18:00.0", "40:00.0", "4f:00.0", "5e:00.0", "9a:00.0", "c0:00.0", "ce:00.0", "dc:00.0"];
const H100_STORAGE: [&str; 4] = ["29:00.0", "29:00.1", "aa:00.0", "aa:00.1"];
const B200_COMPUTE: [&str; 8] =
    ["18:00.0", "40:00.0", "4f:00.0", "5e:00.0", "9a:00.0", "c0:00.0", "ce:00.0", "dc:00.0"];
const B200_MANAGERS: [&str; 4] = ["05:00.0", "05:00.1", "05:00.2", "05:00.3"];

#[test]
fn roles_of_all_machines() {
    let mut text = String::new();
    for (name, facts) in MACHINES {
        let overlay = vm_size(name).and_then(Overlay::built_in);
        let (topology, _) = Topology::build(&snapshot(facts), overlay.as_ref());
        writeln!(text, "{name}").unwrap();
        for nic in topology.nics() {
            writeln!(text, "  {} {:<10} {}", nic.address, nic.role, nic.role_reason).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn managers_of_nvlink_switches_are_found_by_product_data_or_by_their_links() {
    let by_data = of_machine("dgx-b200");
    assert_eq!(with_role(&by_data, NicRole::Management), B200_MANAGERS);
    assert_eq!(compute(&by_data), B200_COMPUTE);
    let text = machine("dgx-b200").unwrap();
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("vpd"))
        .fold(String::new(), |text, line| text + line + "\n");
    let by_link = topology(&without);
    assert_eq!(with_role(&by_link, NicRole::Management), B200_MANAGERS);
    let wide = topology(&text.replace("width = 2", "width = 16"));
    assert_eq!(with_role(&wide, NicRole::Management), B200_MANAGERS, "the data say it");
    let neither = topology(&without.replace("width = 2", "width = 16"));
    assert_eq!(compute(&neither), B200_COMPUTE, "they are near no GPU");
}

#[test]
fn compute_nics_are_found_with_either_link_type() {
    let text = machine("dgx-h100").unwrap();
    let roce = text.replace("link_layer = InfiniBand", "link_layer = Ethernet");
    let ports_left =
        change(&roce, &H100_STORAGE, "link_layer = Ethernet", "link_layer = InfiniBand");
    let ports_left = change(&ports_left, &H100_STORAGE, "4: ACTIVE", "1: DOWN");
    for (what, text) in [("InfiniBand", text), ("RoCE", &*roce), ("ports left", &*ports_left)] {
        let topology = topology(text);
        assert_eq!(compute(&topology), H100_COMPUTE, "{what}");
        assert_eq!(topology.pairs().len(), 8, "{what}");
    }
    // An idle port has the rate of its slowest mode, or still that of its model.
    for rate in ["10 Gb/sec (4X SDR)", "2.5 Gb/sec (1X SDR)", "400 Gb/sec (4X NDR)"] {
        let idle = change(&ports_left, &H100_STORAGE, "200 Gb/sec (4X HDR)", rate);
        assert_eq!(compute(&topology(&idle)), H100_COMPUTE, "{rate}");
    }
    let gb200 = machine("gb200-nvl72").unwrap();
    let roce = gb200.replace("link_layer = InfiniBand", "link_layer = Ethernet");
    for text in [gb200, &*roce] {
        let topology = topology(text);
        assert_eq!(compute(&topology), ["03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0"]);
    }
}

/// Which ports are up changes nothing, and neither does the rate that an idle port shows.
#[test]
fn a_port_that_goes_down_changes_no_role_and_no_pair() {
    for name in [
        "dgx-h100",
        "dgx-b200",
        "dgx-a100",
        "gb200-nvl72",
        "azure-ndh100v5",
        "gcp-a4",
        "h200-vm-8gpu",
    ] {
        let facts = snapshot(machine(name).unwrap());
        let (before, _) = Topology::build(&facts, None);
        let roles = |topology: &Topology| -> Vec<_> {
            topology.nics().iter().map(|nic| (nic.address, nic.role)).collect()
        };
        let all: Vec<PciAddress> = before.nics().iter().map(|nic| nic.address).collect();
        let compute: Vec<_> = before
            .nics()
            .iter()
            .filter(|nic| nic.role == NicRole::Compute)
            .map(|nic| nic.address)
            .collect();
        for down in [&compute[..1], &compute[1..3], &compute[..], &all[..]] {
            for idle_rate in [None, Some(10_000), Some(2_500)] {
                let mut facts = facts.clone();
                let is_down = |rdma: &&mut RdmaDevice| {
                    rdma.pci.is_some_and(|address| down.contains(&address))
                };
                for port in facts.rdma.iter_mut().filter(is_down).flat_map(|it| &mut it.ports) {
                    port.state = Some(PortState::Down);
                    port.rate_megabits = idle_rate.or(port.rate_megabits);
                }
                let (after, _) = Topology::build(&facts, None);
                assert_eq!(roles(&after), roles(&before), "{name} {down:?} {idle_rate:?}");
                assert_eq!(after.pairs(), before.pairs(), "{name} {down:?} {idle_rate:?}");
            }
        }
    }
}

#[test]
fn a_link_that_comes_up_slower_changes_no_role_beside_a_gpu() {
    let text = machine("dgx-h100").unwrap();
    let before = topology(text);
    for slow in [&H100_COMPUTE[..1], &H100_COMPUTE[..3], &H100_COMPUTE[..7]] {
        let after = topology(&change(text, slow, "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"));
        assert_eq!(compute(&after), H100_COMPUTE, "{slow:?}");
        assert_eq!(after.pairs(), before.pairs());
    }
}

#[test]
fn a_device_that_does_not_answer_keeps_its_role() {
    let mut facts = snapshot(machine("dgx-h100").unwrap());
    for device in facts.rdma.iter_mut().filter(|device| device.name == "mlx5_0") {
        device.ports.clear();
    }
    assert_eq!(compute(&Topology::build(&facts, None).0), H100_COMPUTE);
}

/// A 25 Gb/s front end below the switch of the first GPU, as in Dell's XE9680.
#[test]
fn a_slow_front_end_beside_a_gpu_is_not_its_partner() {
    let text = machine("x86-two-per-switch").unwrap();
    let front = ["1a:00.0"];
    let slow = change(text, &front, "400 Gb/sec (4X NDR)", "25 Gb/sec (1X EDR)");
    let slow = change(&slow, &front, "device = 0x1021", "device = 0x101f");
    let topology = topology(&slow);
    assert_eq!(with_role(&topology, NicRole::Storage), front);
    assert!(topology.pairs().iter().all(|pair| !pair.nic.to_string().ends_with("1a:00.0")));
}

/// Faster storage at the CPU does not replace NICs that were built in beside every GPU.
#[test]
fn nics_beside_every_gpu_are_for_compute_although_storage_is_faster_or_equal() {
    let text = machine("dgx-h100").unwrap();
    for (compute_rate, storage_rate) in [
        ("400 Gb/sec (4X NDR)", "400 Gb/sec (4X NDR)"),
        ("200 Gb/sec (4X HDR)", "400 Gb/sec (4X NDR)"),
        ("200 Gb/sec (4X HDR)", "200 Gb/sec (4X HDR)"),
    ] {
        for layer in ["InfiniBand", "Ethernet"] {
            let text = change(text, &H100_COMPUTE, "400 Gb/sec (4X NDR)", compute_rate);
            let text = text.replace("link_layer = InfiniBand", &format!("link_layer = {layer}"));
            let text = if storage_rate.starts_with("400") {
                change(&text, &H100_STORAGE, "200 Gb/sec (4X HDR)", storage_rate)
            } else {
                text
            };
            let topology = topology(&text);
            assert_eq!(compute(&topology), H100_COMPUTE, "{layer} {compute_rate} {storage_rate}");
        }
    }
}

#[test]
fn nics_of_one_class_are_all_for_compute() {
    for name in ["a100-pcie-8gpu", "x86-two-per-switch", "l40s-4gpu", "aws-p5", "dgx-spark-gb10"] {
        let topology = of_machine(name);
        assert_eq!(compute(&topology).len(), topology.nics().len(), "{name}");
    }
    // Without a GPU the fastest class is for compute.
    let text = machine("dgx-h100").unwrap();
    let without = text.replace("class = 0x030200", "class = 0x058000");
    assert_eq!(compute(&topology(&without)), H100_COMPUTE);
}

/// Every decision is published, and read without the facts behind it.
#[test]
fn roles_are_read_back() {
    for (name, text) in MACHINES {
        let topology = topology(text);
        let spec = topology.to_spec();
        let back = Topology::from_spec(&spec).unwrap();
        assert_eq!(back.nics(), topology.nics(), "{name}");
    }
}

#[test]
fn the_operator_decides() {
    let topology = of_machine("dgx-h100");
    let address = |text: &str| format!("0000:{text}").parse().unwrap();
    let roles = BTreeMap::from([
        (address("18:00.0"), NicRole::Storage),
        (address("29:00.0"), NicRole::Compute),
    ]);
    let changed = topology.with_roles(&roles, "the operator's expression");
    assert!(compute(&changed).contains(&"29:00.0".to_owned()));
    assert!(!compute(&changed).contains(&"18:00.0".to_owned()));
    assert!(!partners(&changed).values().flatten().any(|nic| nic == "0000:18:00.0"));
    let back = Topology::from_spec(&changed.to_spec()).unwrap();
    assert_eq!(back.nics(), changed.nics());
}
