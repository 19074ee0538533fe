//! Vital product data: the one keyword that the parts of an adapter share.
//!
//! A `ConnectX`-8 moves data with a separate function below the GPU's switch (Data Direct); its
//! keyword `V3` equals that of the adapter's network functions. Format: PCI Local Bus Specification
//! 3.0, appendix I (`drivers/pci/vpd.c`).

use super::tree::Tree;

/// Large resources have the upper bit set and a length of two bytes.
const LARGE: u8 = 0x80;
const READ_ONLY: u8 = 0x90;
/// Small resources have their length in the lower three bits; this one ends the list.
const END: u8 = 0x78;
const KEYWORD: &[u8; 2] = b"V3";
/// The maximum length; a UUID has 36 characters.
const LONGEST: usize = 64;

pub(super) fn v3(sys: &mut Tree, path: &str) -> Option<String> {
    sys.vpd(&format!("{path}/vpd"), |bytes| keyword(read_only(bytes)?))
}

/// The resource of read-only keywords.
fn read_only(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (&tag, rest) = bytes.split_first()?;
        if tag & LARGE == 0 {
            let length = usize::from(tag & 0b111);
            bytes = (tag & !0b111 != END).then(|| rest.get(length..))??;
            continue;
        }
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        if tag == READ_ONLY {
            return rest.get(..length);
        }
        bytes = rest.get(length..)?;
    }
}

fn keyword(mut bytes: &[u8]) -> Option<String> {
    loop {
        let (head, rest) = bytes.split_first_chunk::<3>()?;
        let (value, rest) = rest.split_at_checked(usize::from(head[2]))?;
        if &head[..2] == KEYWORD && value.len() <= LONGEST {
            let text = str::from_utf8(value).ok()?.trim_matches(['\0', ' ']);
            return (!text.is_empty()).then(|| text.to_owned());
        }
        bytes = rest;
    }
}

/// The smallest vital product data with this keyword.
#[cfg(feature = "archive")]
pub(super) fn with_v3(value: &str) -> Vec<u8> {
    let value = &value.as_bytes()[..value.len().min(LONGEST)];
    let length = u8::try_from(value.len()).unwrap_or(0);
    [&[READ_ONLY, length + 3, 0][..], KEYWORD, &[length], value, &[END]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(bytes: &[u8]) -> Option<String> {
        keyword(read_only(bytes)?)
    }

    #[test]
    fn the_keyword_is_found_among_others() {
        let sound = b"\x82\x04\x00Name\x90\x0d\x00PN\x03abcV3\x04uuid\x78";
        assert_eq!(found(sound).as_deref(), Some("uuid"));
        for broken in [
            &sound[..18],
            b"\x90\x05\x00V3\x09uu",
            b"\x78\x90\x07\x00V3\x04uuid",
            b"\x90\x07\x00V3\x04\xff\xff\xff\xff",
        ] {
            assert_eq!(found(broken), None, "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            drop(found(&bytes));
            drop(found(&[&[READ_ONLY, 60, 0][..], &bytes].concat()));
        }

        #[cfg(feature = "archive")]
        #[test]
        fn reading_inverts_writing(value in "[0-9a-f-]{1,36}") {
            prop_assert_eq!(found(&with_v3(&value)), Some(value));
        }
    }
}
