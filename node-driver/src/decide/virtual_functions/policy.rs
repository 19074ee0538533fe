//! The operator's word on virtual functions: how many, and of which physical functions. The
//! names are those of the SR-IOV network operator's policies.

use std::str::FromStr;
use topology_graph::PciAddress;

/// How many virtual functions each of these physical functions is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SriovPolicy {
    /// How many.
    pub num_vfs: u16,
    /// Whether also where the node's own traffic goes through the physical function.
    pub allow_uplink: bool,
    selector: Selector,
}

/// All that is named must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selector {
    vendor: Option<u16>,
    device_id: Option<u16>,
    pf_name: Option<String>,
    root_device: Option<PciAddress>,
}

/// A physical function as policies select it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) vendor: u16,
    pub(super) device_id: u16,
    pub(super) address: PciAddress,
    /// Its interface, where the host has it.
    pub(super) interface: Option<&'a str>,
}

/// A text that is no such policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SriovPolicyError {
    /// Not `key=value`.
    #[error("`{0}` is not KEY=VALUE")]
    NoValue(String),
    /// Another key.
    #[error(
        "`{0}` is no key; the keys are numVfs, vendor, deviceID, pfName, rootDevice, allowUplink"
    )]
    UnknownKey(String),
    /// A key that is there twice.
    #[error("`{0}` is there twice; repeat the flag for other physical functions")]
    Twice(String),
    /// A value that cannot be.
    #[error("`{key}={value}`: {expected} expected")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Nothing says how many.
    #[error("numVfs is missing")]
    NoNumber,
    /// It would be for every physical function.
    #[error("it selects nothing; name vendor, deviceID, pfName or rootDevice")]
    NoSelector,
}

impl SriovPolicy {
    /// Whether it is for this physical function.
    pub(super) fn selects(&self, candidate: Candidate<'_>) -> bool {
        let Selector { vendor, device_id, pf_name, root_device } = &self.selector;
        let has_name =
            |pattern: &String| candidate.interface.is_some_and(|name| matches(pattern, name));
        vendor.is_none_or(|vendor| vendor == candidate.vendor)
            && device_id.is_none_or(|device| device == candidate.device_id)
            && root_device.is_none_or(|address| address == candidate.address)
            && pf_name.as_ref().is_none_or(has_name)
    }
}

/// Whether a name is as the pattern says, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            name.strip_prefix(start).is_some_and(|left| ends(left).any(|left| matches(rest, left)))
        }
    }
}

/// What is left of a text after each of its characters.
fn ends(text: &str) -> impl Iterator<Item = &str> {
    (0..=text.len()).filter_map(|start| text.get(start..))
}

impl FromStr for SriovPolicy {
    type Err = SriovPolicyError;

    fn from_str(text: &str) -> Result<Self, SriovPolicyError> {
        let mut selector = Selector::default();
        let (mut num_vfs, mut allow_uplink) = (None, None);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let no_value = || SriovPolicyError::NoValue(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(no_value)?;
            let field = Field { key, value };
            match key {
                "numVfs" => field.set(&mut num_vfs, "a number", |it| it.parse().ok())?,
                "allowUplink" => {
                    field.set(&mut allow_uplink, "true or false", |it| it.parse().ok())?;
                }
                "vendor" => field.set(&mut selector.vendor, "a PCI id such as 15b3", pci_id)?,
                "deviceID" => {
                    field.set(&mut selector.device_id, "a PCI id such as 1021", pci_id)?;
                }
                "pfName" => field.set(&mut selector.pf_name, "an interface's name", name)?,
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
        let wrong =
            || SriovPolicyError::Value { key: key.to_owned(), value: value.to_owned(), expected };
        match place.replace(parse(value).ok_or_else(wrong)?) {
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
    fn all_that_is_named_must_hold() {
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
        assert!(!policy("numVfs=4,pfName=*").selects(away), "its name is not known");
        assert!(policy("numVfs=4,vendor=15b3").selects(away));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            ("vendor=15b3", "numVfs is missing"),
            ("numVfs=4", "it selects nothing; name vendor, deviceID, pfName or rootDevice"),
            ("", "it selects nothing; name vendor, deviceID, pfName or rootDevice"),
            (
                "numVfs=4,allowUplink=true",
                "it selects nothing; name vendor, deviceID, pfName or rootDevice",
            ),
            ("numVfs=many,vendor=15b3", "`numVfs=many`: a number expected"),
            ("numVfs=70000,vendor=15b3", "`numVfs=70000`: a number expected"),
            ("numVfs=4,vendor=mellanox", "`vendor=mellanox`: a PCI id such as 15b3 expected"),
            (
                "numVfs=4,rootDevice=86",
                "`rootDevice=86`: a PCI address such as 0000:86:00.0 expected",
            ),
            ("numVfs=4,pfName=", "`pfName=`: an interface's name expected"),
            ("numVfs=4,pfName", "`pfName` is not KEY=VALUE"),
            (
                "numVfs=4,vendor=15b3,vendor=8086",
                "`vendor` is there twice; repeat the flag for other physical functions",
            ),
            (
                "numVfs=4,isRdma=true",
                "`isRdma` is no key; the keys are numVfs, vendor, deviceID, pfName, rootDevice, allowUplink",
            ),
        ] {
            assert_eq!(text.parse::<SriovPolicy>().unwrap_err().to_string(), error, "{text}");
        }
    }
}
