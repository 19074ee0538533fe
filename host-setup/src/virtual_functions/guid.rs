//! GUIDs of InfiniBand virtual functions. Adapters create virtual functions without GUIDs,
//! and without them the ports stay down. Pure.

use sha2::{Digest, Sha256};

/// Marks an EUI-64 that no vendor assigned (IEEE 802, "local" bit of the first octet).
const LOCAL: u8 = 0b10;
/// Marks an EUI-64 of a group.
const GROUP: u8 = 0b01;

/// Parses a GUID in the format of sysfs, `0c42:a103:0065:4c3e`.
pub fn parse(text: &str) -> Option<u64> {
    let digits: String = text.trim().split(':').collect();
    let is_whole = digits.len() == 16 && digits.bytes().all(|it| it.is_ascii_hexdigit());
    u64::from_str_radix(&digits, 16).ok().filter(|_| is_whole)
}

/// Derives the GUID of a virtual function from its number and the node GUID of its physical
/// function. It is the same after each reboot, so that subnet managers can rely on it.
pub fn derive(physical: u64, number: u16) -> u64 {
    let digest = Sha256::digest([&physical.to_be_bytes()[..], &number.to_be_bytes()].concat());
    let [first, rest @ ..]: [u8; 32] = digest.into();
    let first = first & !GROUP | LOCAL;
    rest.iter().take(7).fold(first.into(), |guid, byte| guid << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn guids_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("0c42:a103:0065:4c3e\n"), Some(0x0c42_a103_0065_4c3e));
        assert_eq!(parse("0000:0000:0000:0000"), Some(0));
        for text in ["", "0c42:a103:0065", "0c42:a103:0065:4c3e:0000", "0c42:a103:0065:+c3e"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// Changing these values would change the GUIDs of virtual functions in all clusters.
    #[test]
    fn the_guid_of_a_function_never_changes() {
        assert_eq!(format!("{:016x}", derive(0x0c42_a103_0065_4c3e, 0)), "52b89db81fcfaddc");
        assert_eq!(format!("{:016x}", derive(0x0c42_a103_0065_4c3e, 1)), "4202d52676755cd1");
    }

    #[test]
    fn guids_are_unique_and_locally_administered() {
        let physical = (0..64).map(|port| 0x0c42_a103_0065_4c3e + port);
        let all = physical.flat_map(|port| (0..128).map(move |number| derive(port, number)));
        let mut seen = BTreeSet::new();
        for guid in all {
            assert_eq!(guid >> 56 & 0b11, 0b10, "{guid:016x}");
            assert!(seen.insert(guid), "{guid:016x}");
        }
        assert_eq!(seen.len(), 64 * 128);
    }
}
