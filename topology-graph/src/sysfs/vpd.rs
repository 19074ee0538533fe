//! Vital product data: the one keyword that the parts of an adapter share, and the mark of the
//! adapters that manage NVLink switches.
//!
//! `SMDL=SW_MNG` marks the functions through which NVIDIA's Fabric Manager and NVLink subnet manager
//! reach the switches of HGX B200 and later. A `ConnectX`-8 moves data with a separate function below the GPU's switch (Data Direct); its
//! keyword `V3` equals that of the adapter's network functions. Format: PCI Local Bus Specification
//! 3.0, appendix I (`drivers/pci/vpd.c`).

/// Large resources have the upper bit set and a length of two bytes.
const LARGE: u8 = 0x80;
const READ_ONLY: u8 = 0x90;
/// Small resources have their length in the lower three bits; this one ends the list.
const END: u8 = 0x78;
const KEYWORD: &[u8; 2] = b"V3";
const SWITCH_MANAGEMENT: &[u8] = b"SW_MNG";
/// The maximum length; a UUID has 36 characters.
const LONGEST: usize = 64;

/// The part of the vital product data that is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vpd {
    /// Keyword `V3`, which is equal on all functions of an adapter.
    pub(super) v3: Option<String>,
    /// True if the function manages NVLink switches.
    pub(super) manages_switches: bool,
}

impl Vpd {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self {
            v3: read_only(bytes).and_then(keyword),
            manages_switches: bytes
                .windows(SWITCH_MANAGEMENT.len())
                .any(|it| it == SWITCH_MANAGEMENT),
        }
    }

    /// The smallest vital product data with these facts.
    #[cfg(feature = "archive")]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let v3 = self.v3.as_ref().map(|value| field(*KEYWORD, value.as_bytes()));
        let model = self.manages_switches.then(|| field(*b"V0", b"SMDL=SW_MNG"));
        let fields: Vec<u8> = v3.into_iter().chain(model).flatten().collect();
        let length = u8::try_from(fields.len()).unwrap_or(0);
        [&[READ_ONLY, length, 0], fields.as_slice(), &[END]].concat()
    }
}

#[cfg(feature = "archive")]
fn field(keyword: [u8; 2], value: &[u8]) -> Vec<u8> {
    let value = &value[..value.len().min(LONGEST)];
    let length = u8::try_from(value.len()).unwrap_or(0);
    [&keyword[..], &[length], value].concat()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(bytes: &[u8]) -> Option<String> {
        Vpd::parse(bytes).v3
    }

    #[test]
    fn managers_of_switches_are_marked() {
        let marked = b"\x90\x0e\x00V0\x0bSMDL=SW_MNG\x78";
        assert!(Vpd::parse(marked).manages_switches);
        assert!(!Vpd::parse(b"\x90\x07\x00V3\x04uuid\x78").manages_switches);
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
        fn reading_inverts_writing(
            v3 in prop::option::of("[0-9a-f-]{1,36}"),
            manages_switches in any::<bool>(),
        ) {
            let vpd = Vpd { v3, manages_switches };
            prop_assert_eq!(Vpd::parse(&vpd.to_bytes()), vpd);
        }
    }
}
