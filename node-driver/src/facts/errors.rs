//! Error counters of NICs: of their ports (`Documentation/ABI/stable/sysfs-class-infiniband`), and of
//! their PCIe links (`Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats`).

use publication::health::PortErrors;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology_graph::{PciAddress, Snapshot};

/// Counters of symbols and packets that arrived broken. For Ethernet most drivers have only some.
const BROKEN: [&str; 3] = ["symbol_error", "port_rcv_errors", "local_link_integrity_errors"];
/// The counter of lost links.
const DOWNED: &str = "link_downed";
/// The line with the sum of corrected errors.
const CORRECTED: &str = "TOTAL_ERR_COR";

/// The errors of a device's ports, from its directory; `None` if it has no counters.
pub(crate) fn of_ports(device: &Path) -> Option<PortErrors> {
    let ports = fs::read_dir(device.join("ports")).ok()?.flatten();
    let mut errors = None;
    for port in ports {
        let counters = port.path().join("counters");
        let broken: Vec<u64> = BROKEN.iter().filter_map(|name| counter(&counters, name)).collect();
        let downed = counter(&counters, DOWNED);
        if broken.is_empty() && downed.is_none() {
            continue;
        }
        let sum: &mut PortErrors = errors.get_or_insert_default();
        sum.broken = broken.iter().fold(sum.broken, |sum, value| sum.saturating_add(*value));
        sum.link_downs = sum.link_downs.saturating_add(downed.unwrap_or_default());
    }
    errors
}

fn counter(directory: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
}

/// The corrected errors of the PCIe links of NICs, where the kernel counts them.
pub(crate) fn of_links(sys: &Path, snapshot: &Snapshot) -> BTreeMap<PciAddress, u64> {
    let nics = snapshot.pci.iter().filter(|it| it.class >> 16 == 0x02);
    nics.filter_map(|function| {
        let file = sys.join(&function.path).join("aer_dev_correctable");
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(CORRECTED))?;
        Some((function.address, line.trim().parse().ok()?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use publication::live;
    use topology_graph::HostRoot;

    #[test]
    fn counters_are_summed_over_the_ports() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(of_ports(root.path()), None);
        let write = |file: &str, text: &str| {
            let file = root.path().join("ports").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("1/state", "4: ACTIVE\n");
        assert_eq!(of_ports(root.path()), None, "a device without counters");
        write("1/counters/symbol_error", "3\n");
        write("1/counters/port_rcv_errors", "N/A\n");
        write("2/counters/local_link_integrity_errors", "4\n");
        write("2/counters/link_downed", "2\n");
        assert_eq!(of_ports(root.path()), Some(PortErrors { broken: 7, link_downs: 2 }));
    }

    #[test]
    fn corrected_errors_are_those_that_aer_counts() {
        let root = live::plant("aks-gb300");
        let snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
        let sys = root.path().join("sys");
        assert!(of_links(&sys, &snapshot).is_empty());
        let function = snapshot.pci.iter().find(|it| it.class >> 16 == 0x02).unwrap();
        let text = "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n";
        fs::write(sys.join(&function.path).join("aer_dev_correctable"), text).unwrap();
        assert_eq!(of_links(&sys, &snapshot), BTreeMap::from([(function.address, 3)]));
    }
}
