//! PCI functions, from `bus/pci/devices` (`Documentation/ABI/testing/sysfs-bus-pci`).

use std::collections::BTreeSet;

use super::config::extended;
use super::tree::{Tree, pci_chain};
use super::vpd::Vpd;
use crate::class::{is_gpu, is_infiniband, is_network};
use crate::nic_role::is_one_adapter;
use crate::snapshot::{IommuMode, PciFunction};
use crate::vendor::MELLANOX;
use crate::{AnomalyKind, NumaNode, PciAddress, PcieLink};

const DEVICES: &str = "bus/pci/devices";
/// Adapters for traffic have at least so many lanes.
const FEW_LANES: u8 = 8;

pub(super) fn functions(sys: &mut Tree) -> Vec<PciFunction> {
    let names = sys.names(DEVICES);
    let mut functions: Vec<_> = names.iter().filter_map(|name| function(sys, name)).collect();
    functions.sort_by_key(|function| function.address);
    read_extended(sys, &mut functions);
    read_adapters(sys, &mut functions);
    functions
}

/// Reads what the functions of an adapter have in common, and whether they manage NVLink switches.
/// Vital product data take milliseconds per function to read, so they are read only if an adapter
/// has a separate data path, or could be a manager.
fn read_adapters(sys: &mut Tree, functions: &mut [PciFunction]) {
    let has_data_path = functions.iter().any(PciFunction::is_data_direct);
    let managers = possible_managers(functions);
    for part in functions.iter_mut().filter(|function| function.vendor == MELLANOX) {
        let is_part = has_data_path && (part.is_data_direct() || is_network(part.class));
        if is_part || managers.contains(&part.address) {
            let vpd = sys.vpd(&format!("{}/vpd", part.path));
            let Vpd { v3, manages_switches } = vpd.unwrap_or_default();
            part.vpd_v3 = v3.filter(|_| is_part);
            part.manages_switches = manages_switches;
        }
    }
}

/// The InfiniBand functions of adapters with several functions or few lanes.
fn possible_managers(functions: &[PciFunction]) -> BTreeSet<PciAddress> {
    let physical = functions.iter().filter(|function| {
        function.vendor == MELLANOX
            && is_infiniband(function.class)
            && function.physical_function.is_none()
    });
    let physical: Vec<&PciFunction> = physical.collect();
    physical
        .iter()
        .filter(|function| {
            let is_narrow = function.max_link.is_some_and(|link| link.width < FEW_LANES);
            is_narrow
                || physical
                    .iter()
                    .filter(|other| is_one_adapter(other.address, function.address))
                    .count()
                    > 1
        })
        .map(|function| function.address)
        .collect()
}

/// Reads access control of the bridges above GPUs and NICs, and address translation of NICs. Words
/// of configuration space are slow to read, so other functions are skipped.
fn read_extended(sys: &mut Tree, functions: &mut [PciFunction]) {
    let bridges: BTreeSet<PciAddress> = functions
        .iter()
        .filter(|function| {
            is_network(function.class) || is_gpu(function.class) || function.is_data_direct()
        })
        .flat_map(|function| function.bridges.clone())
        .collect();
    for function in functions {
        let is_bridge = bridges.contains(&function.address);
        if is_bridge || is_network(function.class) || function.is_data_direct() {
            let found = extended(sys, &function.path);
            function.acs = found.acs.filter(|_| is_bridge);
            function.ats_enabled = found.ats_enabled.filter(|_| !is_bridge);
        }
    }
}

/// `None` if address, class, vendor or device is missing.
fn function(sys: &mut Tree, name: &str) -> Option<PciFunction> {
    let listed = format!("{DEVICES}/{name}");
    let Ok(address) = name.parse::<PciAddress>() else {
        sys.note(AnomalyKind::Malformed, &listed, format!("invalid PCI address `{name}`"));
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
        iommu_mode: sys.text(&format!("{path}/iommu_group/type")).as_deref().and_then(iommu_mode),
        acs: None,
        ats_enabled: None,
        vpd_v3: None,
        manages_switches: false,
        current_link: link(sys, &path, "current"),
        max_link: link(sys, &path, "max"),
        path,
    })
}

/// Parses the kernel's `identity`, `DMA` and `DMA-FQ`; `None` for `auto` and unknown words.
fn iommu_mode(text: &str) -> Option<IommuMode> {
    match text {
        "identity" => Some(IommuMode::PassThrough),
        "DMA" | "DMA-FQ" => Some(IommuMode::Translated),
        _ => None,
    }
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

/// `-1` means unknown; other negative numbers are invalid.
fn numa_node(sys: &mut Tree, path: &str) -> Option<NumaNode> {
    let node = sys.parsed(path, |text| text.parse::<i64>().ok().filter(|node| *node >= -1))?;
    u32::try_from(node).ok().map(NumaNode)
}

fn link(sys: &mut Tree, path: &str, which: &str) -> Option<PcieLink> {
    let speed = sys.text(&format!("{path}/{which}_link_speed"))?;
    let width = sys.text(&format!("{path}/{which}_link_width"))?;
    PcieLink::parse(&speed, &width)
}
