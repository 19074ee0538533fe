//! Names of the PCI ID database for vendors and devices, as upstream publishes
//! them. The database is part of the binary: a host need not have one.

use pci_ids::{Device, FromId, Vendor};

/// The vendor's name, `Mellanox Technologies`.
pub(crate) fn vendor(vendor: u16) -> Option<&'static str> {
    Vendor::from_id(vendor).map(Vendor::name)
}

/// The device's name, `ConnectX Family mlx5Gen Virtual Function`.
pub(crate) fn device(vendor: u16, device: u16) -> Option<&'static str> {
    Device::from_vid_pid(vendor, device).map(Device::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nics_that_upstream_has_published() {
        for (ids, names) in [
            (
                (0x15b3, 0x101e),
                ("Mellanox Technologies", "ConnectX Family mlx5Gen Virtual Function"),
            ),
            ((0x15b3, 0x1023), ("Mellanox Technologies", "CX8 Family [ConnectX-8]")),
            ((0x1d0f, 0xefa0), ("Amazon.com, Inc.", "Elastic Fabric Adapter (EFA)")),
            ((0x1d0f, 0xec20), ("Amazon.com, Inc.", "Elastic Network Adapter (ENA)")),
        ] {
            assert_eq!((vendor(ids.0), device(ids.0, ids.1)), (Some(names.0), Some(names.1)));
        }
        assert_eq!((vendor(0x15b3), device(0x15b3, 0xffff)), (Some("Mellanox Technologies"), None));
        assert_eq!((vendor(0xffff), device(0xffff, 0)), (Some("Illegal Vendor ID"), None));
    }
}
