//! PCI vendor IDs.

pub(crate) const NVIDIA: u16 = 0x10de;
/// AMD's GPUs.
pub(crate) const AMD: u16 = 0x1002;
/// AMD's CPUs, and the ports inside of its newer GPUs.
const AMD_CPU: u16 = 0x1022;
pub(crate) const INTEL: u16 = 0x8086;
/// NVIDIA's NICs.
pub(crate) const MELLANOX: u16 = 0x15b3;
pub(crate) const AMAZON: u16 = 0x1d0f;
/// Habana: Gaudi is a processing accelerator.
pub(crate) const HABANA: u16 = 0x1da3;

/// Returns true for Amazon's Elastic Fabric Adapter, of any generation.
pub(crate) fn is_efa((vendor, device): (u16, u16)) -> bool {
    vendor == AMAZON && device & 0xfff0 == 0xefa0
}

/// Returns true if a bridge with this vendor and device ID can be a part of a device by this vendor: the
/// same company makes both. The bridges of `ConnectX` are switches for the devices of a board, and those of
/// a hypervisor are no hardware.
pub(crate) fn is_bridge_of(bridge: (u16, u16), vendor: u16) -> bool {
    company(bridge.0) == company(vendor) && bridge.0 != MELLANOX && !is_emulated_bridge(bridge)
}

/// One vendor ID for each company.
fn company(vendor: u16) -> u16 {
    if vendor == AMD_CPU { AMD } else { vendor }
}

/// Returns true if a hypervisor emulates this bridge, so that its place says nothing about the
/// hardware: the bridges of QEMU (also those that it models on chips of Intel and TI), of `VMware`,
/// Xen, Hyper-V, `VirtualBox`, Parallels and bhyve, and of the clouds of Amazon, Google and Alibaba
/// (PCI ID database).
pub(crate) fn is_emulated_bridge((vendor, device): (u16, u16)) -> bool {
    match vendor {
        0x1b36 | 0x1af4 | 0x15ad | 0x5853 | 0x1414 | 0x80ee | 0x1ab8 | 0xfb5d | 0x1d0f | 0x1ae0
        | 0x1ded => true,
        // ioh3420 and the two ports of the xio3130.
        INTEL => device == 0x3420,
        0x104c => matches!(device, 0x8232 | 0x8233),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_of_hypervisors_are_told_from_hardware() {
        for id in [(0x1b36, 0x000c), (0x8086, 0x3420), (0x104c, 0x8233), (0x15ad, 0x07a0)] {
            assert!(is_emulated_bridge(id), "{id:04x?}");
        }
        for id in [(0x8086, 0x352a), (0x1022, 0x1483), (0x1000, 0xc030), (0x104c, 0x8231)] {
            assert!(!is_emulated_bridge(id), "{id:04x?}");
        }
    }

    #[test]
    fn bridges_of_a_device_are_told_from_switches_of_a_board() {
        for (bridge, vendor) in
            [((0x1022, 0x1500), AMD), ((INTEL, 0x4fa0), INTEL), ((0x1dd8, 0x0008), 0x1dd8)]
        {
            assert!(is_bridge_of(bridge, vendor), "{bridge:04x?}");
        }
        for (bridge, vendor) in [
            ((0x1000, 0xc030), AMD),
            ((0x1022, 0x1500), INTEL),
            ((MELLANOX, 0x1979), MELLANOX),
            ((0x1d0f, 0x0200), 0x1d0f),
        ] {
            assert!(!is_bridge_of(bridge, vendor), "{bridge:04x?}");
        }
    }
}
