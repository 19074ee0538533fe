//! Vendor and device names of the PCI ID database, as upstream publishes them. The
//! database is part of the binary, because a host need not have one. A lookup searches
//! only one vendor's part (`build.rs` describes the format).

/// For each vendor, its name on a line and then its devices, `101e ConnectX …`.
const NAMES: &str = include_str!(concat!(env!("OUT_DIR"), "/pci_names.txt"));
/// Vendor ID and offset of the vendor's part, sorted by vendor.
#[expect(clippy::unreadable_literal, reason = "written by build.rs")]
static VENDORS: &[(u16, u32)] = &include!(concat!(env!("OUT_DIR"), "/pci_vendors.rs"));

/// The vendor's name, `Mellanox Technologies`.
pub(crate) fn vendor(vendor: u16) -> Option<&'static str> {
    lines(vendor)?.next()
}

/// The device's name, `ConnectX Family mlx5Gen Virtual Function`.
pub(crate) fn device(vendor: u16, device: u16) -> Option<&'static str> {
    let id = format!("{device:04x} ");
    lines(vendor)?.skip(1).find_map(|line| line.strip_prefix(&id))
}

/// The vendor's part of the database.
fn lines(vendor: u16) -> Option<impl Iterator<Item = &'static str>> {
    let at = VENDORS.binary_search_by_key(&vendor, |(id, _)| *id).ok()?;
    let part = NAMES.get(begin(at)?..begin(at + 1).unwrap_or(NAMES.len()))?;
    Some(part.lines())
}

/// The offset of a vendor's part, by the vendor's place in the table.
fn begin(index: usize) -> Option<usize> {
    VENDORS.get(index).and_then(|(_, begin)| usize::try_from(*begin).ok())
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
