//! Attributes of whole machines, compared with what was published on live ones.

use super::*;
use crate::attribute::{MAX_ENTRIES, Text};
use crate::cloud::{CloudMetadata, MAX_ATTRIBUTES};
use crate::decision::decide;
use crate::live;
use crate::machine::Facts;
use crate::network::{Cidr, NetworkFacts};
use crate::nic::LinkType;
use cluster_model::gpu_drivers::GpuDriver;
use std::collections::BTreeSet;
use std::fmt::Write;
use topology_graph::{HostRoot, fixture};

/// What upstream publishes but this driver does not, according to
/// `docs/reference/attributes.md`: an empty alias, and the eBPF programs.
fn is_left_out(name: &str, value: &DeviceAttribute) -> bool {
    name == "dra.net/ebpf" || (name == dranet::ALIAS && value.string.as_deref() == Some(""))
}

/// One attribute per line, in the API's format. Without the shape hash, which has its own
/// test because it changes with the topology's contents.
fn render(devices: &[Device]) -> String {
    let mut text = String::new();
    for device in devices {
        writeln!(text, "{}", device.name).unwrap();
        for (name, value) in device.attributes.iter().flatten() {
            let value = match name.as_str() {
                attribute::SHAPE => "(hash of the graph)".to_owned(),
                _ => serde_json::to_string(value).unwrap(),
            };
            writeln!(text, "  {name} = {value}").unwrap();
        }
    }
    text
}

#[test]
fn upstreams_attributes_on_live_machines_are_published() {
    let mut compared = Vec::new();
    for machine in live::MACHINES {
        let ours = decide(&live::facts(machine)).devices;
        let theirs = live::published_by_upstream(machine);
        let names = |devices: &[Device]| {
            devices.iter().map(|device| device.name.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&ours), names(&theirs), "{machine}");
        let mut count = 0;
        for device in &theirs {
            let our_device = ours.iter().find(|ours| ours.name == device.name).unwrap();
            let attributes = our_device.attributes.as_ref().unwrap();
            let theirs = device.attributes.iter().flatten();
            for (name, value) in theirs.filter(|(name, value)| !is_left_out(name, value)) {
                assert_eq!(
                    attributes.get(name),
                    Some(value),
                    "{machine}: {name} of {}",
                    device.name
                );
                count += 1;
            }
        }
        compared.push((machine, count));
    }
    assert_eq!(
        compared,
        [("aks-gb300", 36), ("aks-mi300x", 72), ("eks-p4d", 80), ("oke-gb200", 152)]
    );
}

#[test]
fn live_machines_as_published() {
    for machine in live::MACHINES {
        insta::assert_snapshot!(machine, render(&decide(&live::facts(machine)).devices));
    }
}

/// The attributes that all devices share, then one line per device with its own.
fn render_machine(devices: &[Device]) -> String {
    let attributes = |device: &Device| device.attributes.clone().unwrap_or_default();
    let shown = |(name, value): (&String, &DeviceAttribute)| {
        if name == attribute::SHAPE {
            return format!("{name}=(hash of the graph)");
        }
        let value = serde_json::to_value(value).unwrap();
        let value = value.as_object().and_then(|value| value.values().next()).unwrap();
        format!("{name}={value}")
    };
    let is_common = |entry: &(&String, &DeviceAttribute)| {
        devices.iter().all(|device| attributes(device).get(entry.0) == Some(entry.1))
    };
    let first = devices.first().map(attributes).unwrap_or_default();
    let mut text = format!("{} NICs\n", devices.len());
    for entry in first.iter().filter(is_common) {
        writeln!(text, "  {}", shown(entry)).unwrap();
    }
    for device in devices {
        let own = attributes(device);
        let own: Vec<_> = own.iter().filter(|entry| !is_common(entry)).map(shown).collect();
        writeln!(text, "{}: {}", device.name, own.join(" ")).unwrap();
    }
    text
}

/// Without network interfaces and cloud metadata, which fixtures do not contain.
#[test]
fn machines_as_published() {
    for (name, text) in fixture::MACHINES {
        let root = tempfile::tempdir().unwrap();
        fixture::plant(text, root.path()).unwrap();
        let snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
        let facts = Facts {
            snapshot,
            network: NetworkFacts::default(),
            cloud: CloudMetadata::default(),
            rails: None,
        };
        let devices = decide(&facts).devices;
        let slots: Vec<_> = devices.iter().map(|device| &device.name).collect();
        assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), slots.len(), "{name}");
        insta::assert_snapshot!(format!("machine-{name}"), render_machine(&devices));
    }
}

/// A physical function with verbs, two virtual functions of it, and another NIC.
const VIRTUAL_FUNCTIONS: &str = "
/sys/devices/system/node/online = 0
[sys/devices/pci0000:00/0000:01:00.0]
class = 0x020000
vendor = 0x15b3
device = 0x1021
sriov_totalvfs = 8
sriov_numvfs = 2
driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/devices/0000:01:00.0 -> .
infiniband/mlx5_0/ports/1/link_layer = Ethernet
infiniband/mlx5_0/device -> .
/sys/class/infiniband/mlx5_0 -> ./infiniband/mlx5_0
[sys/devices/pci0000:00/0000:01:00.1]
class = 0x020000
vendor = 0x15b3
device = 0x101e
physfn -> ../0000:01:00.0
driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/devices/0000:01:00.1 -> .
infiniband/mlx5_2/ports/1/link_layer = Ethernet
infiniband/mlx5_2/device -> .
/sys/class/infiniband/mlx5_2 -> ./infiniband/mlx5_2
[sys/devices/pci0000:00/0000:01:00.2]
class = 0x020000
vendor = 0x15b3
device = 0x101e
physfn -> ../0000:01:00.0
driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/devices/0000:01:00.2 -> .
[sys/devices/pci0000:00/0000:02:00.0]
class = 0x020000
vendor = 0x15b3
device = 0x1021
driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/devices/0000:02:00.0 -> .
infiniband/mlx5_1/ports/1/link_layer = Ethernet
infiniband/mlx5_1/device -> .
/sys/class/infiniband/mlx5_1 -> ./infiniband/mlx5_1
";

#[test]
fn virtual_and_physical_functions_are_distinguished() {
    let root = tempfile::tempdir().unwrap();
    fixture::plant(VIRTUAL_FUNCTIONS, root.path()).unwrap();
    let snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
    let network = NetworkFacts::default();
    let devices =
        decide(&Facts { snapshot, network, cloud: CloudMetadata::default(), rails: None }).devices;
    let names = [dranet::SRIOV, dranet::SRIOV_VFS, dranet::IS_SRIOV_VF, attribute::RAIL];
    let row = |device: &Device| {
        let attributes = device.attributes.as_ref().unwrap();
        let value = |name: &str| {
            let value = attributes.get(name)?;
            value.int.map(|int| int.to_string()).or_else(|| value.bool.map(|bool| bool.to_string()))
        };
        let values = names.map(|name| value(name).unwrap_or_else(|| "-".to_owned()));
        format!("{} {}", device.name, values.join(" "))
    };
    assert_eq!(
        devices.iter().map(row).collect::<Vec<_>>(),
        [
            "pci-0000-01-00-0 true 2 - 0",
            "pci-0000-01-00-1 false - true 0",
            "pci-0000-01-00-2 false - true -",
            "pci-0000-02-00-0 false - - 1",
        ]
    );
}

#[test]
fn cloud_attributes_are_absent_without_metadata() {
    let mut facts = live::facts("aks-gb300");
    let with = decide(&facts).devices;
    facts.cloud = CloudMetadata::default();
    let without = decide(&facts).devices;
    for (with, without) in with.iter().zip(&without) {
        let is_azure = |name: &&String| name.starts_with("azure.dra.net/");
        assert_eq!(with.attributes.iter().flatten().filter(|(name, _)| is_azure(name)).count(), 2);
        assert_eq!(
            without.attributes.iter().flatten().filter(|(name, _)| is_azure(name)).count(),
            0
        );
        let differ = |name: &&String| {
            !is_azure(name) && ![attribute::SHAPE, attribute::FABRIC].contains(&name.as_str())
        };
        let rest = |device: &Device| {
            let attributes = device.attributes.clone().unwrap();
            attributes.into_iter().filter(|(name, _)| differ(&name)).collect::<Vec<_>>()
        };
        assert_eq!(rest(with), rest(without));
    }
}

#[test]
fn every_table_leaves_room_for_clouds_and_joins() {
    let joins = |driver: &GpuDriver| {
        1 + [driver.uuid_attribute, driver.numa_attribute].iter().flatten().count()
    };
    let joins = gpu_drivers::all().iter().map(joins).max().unwrap();
    for link_type in [LinkType::InfiniBand, LinkType::Ethernet, LinkType::Verbs, LinkType::Virtual]
    {
        let slots: Vec<_> = table(link_type).collect();
        let names: BTreeSet<_> = slots.iter().map(|(name, ..)| *name).collect();
        let has = |name| usize::from(names.contains(name));
        // A function is physical or virtual, has a rail or a port, and omits first what repeats the
        // link type.
        let never = has(dranet::SRIOV_VFS)
            + has(attribute::PORT)
            + usize::from(link_type == LinkType::Ethernet);
        let most = slots.len() + MAX_ATTRIBUTES + joins - never;
        assert!(most <= MAX_ENTRIES, "{link_type:?}: {most} entries");
        assert_eq!(names.len(), slots.len(), "{link_type:?}: each attribute has one slot");
    }
}

#[test]
fn devices_stay_within_the_limits_of_the_api() {
    for machine in live::MACHINES {
        let mut facts = live::facts(machine);
        let longest = Text::new(&"x".repeat(100)).unwrap();
        facts.cloud = (0..MAX_ATTRIBUTES)
            .map(|number| (format!("azure.dra.net/attribute{number}"), longest.clone()))
            .collect();
        for interface in &mut facts.network.interfaces {
            let address =
                |last| format!("2001:db8:1234:5678:9abc:def0:1234:{last}").parse().unwrap();
            interface.addresses =
                (1..9).map(|last| Cidr { address: address(last), prefix: 64 }).collect();
        }
        for device in decide(&facts).devices {
            let attributes = device.attributes.unwrap();
            assert!(attributes.len() <= MAX_ENTRIES);
            for (name, value) in attributes {
                assert!(
                    value.string.as_ref().is_none_or(|text| (1..=64).contains(&text.len())),
                    "{name}"
                );
                assert!(value.int.is_none_or(|int| int >= 0), "{name}");
            }
        }
    }
}
