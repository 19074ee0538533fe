//! PCI functions, from `bus/pci/devices` (`Documentation/ABI/testing/sysfs-bus-pci`).

use super::tree::{Tree, pci_chain};
use crate::snapshot::PciFunction;
use crate::{AnomalyKind, NumaNode, PciAddress, PcieLink};

const DEVICES: &str = "bus/pci/devices";

pub(super) fn functions(sys: &mut Tree) -> Vec<PciFunction> {
    let names = sys.names(DEVICES);
    let mut functions: Vec<_> = names.iter().filter_map(|name| function(sys, name)).collect();
    functions.sort_by_key(|function| function.address);
    functions
}

/// Without address, class, vendor and device there is no function to speak of.
fn function(sys: &mut Tree, name: &str) -> Option<PciFunction> {
    let listed = format!("{DEVICES}/{name}");
    let Ok(address) = name.parse::<PciAddress>() else {
        sys.note(AnomalyKind::Malformed, &listed, format!("`{name}` is no PCI address"));
        return None;
    };
    let path = sys.link(&listed).unwrap_or(listed);
    let (root, mut bridges) = pci_chain(&path);
    bridges.retain(|bridge| *bridge != address);
    Some(PciFunction {
        address,
        root,
        bridges,
        class: required(sys, &path, "class")?,
        vendor: id(required(sys, &path, "vendor")?)?,
        device: id(required(sys, &path, "device")?)?,
        subsystem_vendor: sys.hex(&format!("{path}/subsystem_vendor")).and_then(id),
        subsystem_device: sys.hex(&format!("{path}/subsystem_device")).and_then(id),
        driver: sys.link_name(&format!("{path}/driver")),
        numa_node: numa_node(sys, &format!("{path}/numa_node")),
        local_cpus: sys.value(&format!("{path}/local_cpulist")),
        physical_function: sys
            .link_name(&format!("{path}/physfn"))
            .and_then(|name| name.parse().ok()),
        sriov_total_vfs: sys.value(&format!("{path}/sriov_totalvfs")),
        sriov_num_vfs: sys.value(&format!("{path}/sriov_numvfs")),
        iommu_group: sys
            .link_name(&format!("{path}/iommu_group"))
            .and_then(|name| name.parse().ok()),
        current_link: link(sys, &path, "current"),
        max_link: link(sys, &path, "max"),
        path,
    })
}

fn required(sys: &mut Tree, path: &str, file: &str) -> Option<u32> {
    let file = format!("{path}/{file}");
    let value = sys.hex(&file);
    if value.is_none() {
        sys.note(AnomalyKind::Unreadable, &file, "the function is left out".to_owned());
    }
    value
}

fn id(value: u32) -> Option<u16> {
    u16::try_from(value).ok()
}

/// `-1` is unknown; other negative numbers are no node.
fn numa_node(sys: &mut Tree, path: &str) -> Option<NumaNode> {
    let node = sys.parsed(path, |text| text.parse::<i64>().ok().filter(|node| *node >= -1))?;
    u32::try_from(node).ok().map(NumaNode)
}

fn link(sys: &mut Tree, path: &str, which: &str) -> Option<PcieLink> {
    let speed = sys.text(&format!("{path}/{which}_link_speed"))?;
    let width = sys.text(&format!("{path}/{which}_link_width"))?;
    PcieLink::parse(&speed, &width)
}
