//! Policies for virtual functions: how many, on which physical functions. The keys are those
//! of the SR-IOV network operator's policies.

use std::str::FromStr;
use topology_graph::PciAddress;

/// The number of virtual functions for each selected physical function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SriovPolicy {
    /// The number of virtual functions.
    pub num_vfs: u16,
    /// Whether the policy also applies if the node's own traffic goes through the physical
    /// function.
    pub allow_uplink: bool,
    selector: Selector,
}

/// Selects physical functions that match all fields that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selector {
    vendor: Option<u16>,
    device_id: Option<u16>,
    pf_name: Option<String>,
    root_device: Option<PciAddress>,
}

/// The properties of a physical function by which policies select it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) vendor: u16,
    pub(super) device_id: u16,
    pub(super) address: PciAddress,
    /// Its interface, if that is in the host's namespace.
    pub(super) interface: Option<&'a str>,
}

/// The text is not a valid policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SriovPolicyError {
    /// A part is not `key=value`.
    #[error("`{0}` is not KEY=VALUE")]
    NoValue(String),
    /// A key is unknown.
    #[error(
        "unknown key `{0}`; allowed: numVfs, vendor, deviceID, pfName, rootDevice, allowUplink"
    )]
    UnknownKey(String),
    /// A key is set twice.
    #[error("`{0}` is set twice; repeat the flag for other physical functions")]
    Twice(String),
    /// A value is invalid.
    #[error("`{key}={value}`: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is valid.
        expected: &'static str,
    },
    /// `numVfs` is missing.
    #[error("numVfs is missing")]
    NoNumber,
    /// No selector is set, so that the policy would apply to every physical function.
    #[error("no physical function is selected; set vendor, deviceID, pfName or rootDevice")]
    NoSelector,
}

impl SriovPolicy {
    /// Whether the policy selects this physical function.
    pub(super) fn selects(&self, candidate: Candidate<'_>) -> bool {
        let Selector { vendor, device_id, pf_name, root_device } = &self.selector;
        vendor.is_none_or(|vendor| vendor == candidate.vendor)
            && device_id.is_none_or(|device| device == candidate.device_id)
            && root_device.is_none_or(|address| address == candidate.address)
            && pf_name.as_ref().is_none_or(|pattern| {
                candidate.interface.is_some_and(|name| matches(pattern, name))
            })
    }
}

/// Whether a name matches a pattern in which `*` matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            name.strip_prefix(start).is_some_and(|left| ends(left).any(|left| matches(rest, left)))
        }
    }
}

/// All suffixes of a text, from the whole text to the empty one.
fn ends(text: &str) -> impl Iterator<Item = &str> {
    (0..=text.len()).filter_map(|start| text.get(start..))
}

impl FromStr for SriovPolicy {
    type Err = SriovPolicyError;

    fn from_str(text: &str) -> Result<Self, SriovPolicyError> {
        let mut selector = Selector::default();
        let (mut num_vfs, mut allow_uplink) = (None, None);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| SriovPolicyError::NoValue(part.to_owned()))?;
            let field = Field { key, value };
            match key {
                "numVfs" => {
                    field.set(&mut num_vfs, "a number from 0 to 65535", |it| it.parse().ok())?;
                }
                "allowUplink" => {
                    field.set(&mut allow_uplink, "true or false", |it| it.parse().ok())?;
                }
                "vendor" => field.set(&mut selector.vendor, "a PCI ID such as 15b3", pci_id)?,
                "deviceID" => {
                    field.set(&mut selector.device_id, "a PCI ID such as 1021", pci_id)?;
                }
                "pfName" => field.set(&mut selector.pf_name, "an interface name", name)?,
                "rootDevice" => {
                    let expected = "a PCI address such as 0000:86:00.0";
                    field.set(&mut selector.root_device, expected, |it| it.parse().ok())?;
                }
                _ => return Err(SriovPolicyError::UnknownKey(key.to_owned())),
            }
        }
        if selector == Selector::default() {
            return Err(SriovPolicyError::NoSelector);
        }
        let num_vfs = num_vfs.ok_or(SriovPolicyError::NoNumber)?;
        Ok(Self { num_vfs, allow_uplink: allow_uplink.unwrap_or_default(), selector })
    }
}

#[derive(Clone, Copy)]
struct Field<'a> {
    key: &'a str,
    value: &'a str,
}

impl Field<'_> {
    fn set<T>(
        self,
        place: &mut Option<T>,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<(), SriovPolicyError> {
        let Self { key, value } = self;
        let Some(parsed) = parse(value) else {
            let (key, value) = (key.to_owned(), value.to_owned());
            return Err(SriovPolicyError::Value { key, value, expected });
        };
        match place.replace(parsed) {
            None => Ok(()),
            Some(_) => Err(SriovPolicyError::Twice(key.to_owned())),
        }
    }
}

fn pci_id(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn name(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> SriovPolicy {
        text.parse().unwrap()
    }

    #[test]
    fn every_set_selector_must_match() {
        let rail = Candidate {
            vendor: 0x15b3,
            device_id: 0x1021,
            address: "0000:86:00.0".parse().unwrap(),
            interface: Some("rail12"),
        };
        for selects in [
            "vendor=15b3",
            "vendor=0x15B3",
            "deviceID=1021",
            "pfName=rail12",
            "pfName=rail*",
            "pfName=*",
            "pfName=r*l*2",
            "pfName=*12",
            "rootDevice=0000:86:00.0",
            "vendor=15b3,deviceID=1021,pfName=rail*,rootDevice=0000:86:00.0",
        ] {
            assert!(policy(&format!("numVfs=4,{selects}")).selects(rail), "{selects}");
        }
        for other in [
            "vendor=8086",
            "deviceID=101e",
            "pfName=rail1",
            "pfName=rail",
            "pfName=eth*",
            "pfName=rail*3",
            "rootDevice=0000:86:00.1",
            "vendor=15b3,pfName=eth0",
        ] {
            assert!(!policy(&format!("numVfs=4,{other}")).selects(rail), "{other}");
        }
        let away = Candidate { interface: None, ..rail };
        assert!(!policy("numVfs=4,pfName=*").selects(away), "its interface is unknown");
        assert!(policy("numVfs=4,vendor=15b3").selects(away));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            ("vendor=15b3", "numVfs is missing"),
            (
                "numVfs=4",
                "no physical function is selected; set vendor, deviceID, pfName or rootDevice",
            ),
            ("", "no physical function is selected; set vendor, deviceID, pfName or rootDevice"),
            (
                "numVfs=4,allowUplink=true",
                "no physical function is selected; set vendor, deviceID, pfName or rootDevice",
            ),
            ("numVfs=many,vendor=15b3", "`numVfs=many`: expected a number from 0 to 65535"),
            ("numVfs=70000,vendor=15b3", "`numVfs=70000`: expected a number from 0 to 65535"),
            ("numVfs=4,vendor=mellanox", "`vendor=mellanox`: expected a PCI ID such as 15b3"),
            (
                "numVfs=4,rootDevice=86",
                "`rootDevice=86`: expected a PCI address such as 0000:86:00.0",
            ),
            ("numVfs=4,pfName=", "`pfName=`: expected an interface name"),
            ("numVfs=4,pfName", "`pfName` is not KEY=VALUE"),
            (
                "numVfs=4,vendor=15b3,vendor=8086",
                "`vendor` is set twice; repeat the flag for other physical functions",
            ),
            (
                "numVfs=4,isRdma=true",
                "unknown key `isRdma`; allowed: numVfs, vendor, deviceID, pfName, rootDevice, allowUplink",
            ),
        ] {
            assert_eq!(text.parse::<SriovPolicy>().unwrap_err().to_string(), error, "{text}");
        }
    }
}
