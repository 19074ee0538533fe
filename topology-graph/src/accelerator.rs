//! Which PCI functions are accelerators: GPUs and other processors that a machine has for training
//! and inference.

use std::fmt;
use std::str::FromStr;

use crate::class::{ACCELERATOR, DISPLAY};
use crate::vendor::{AMD, HABANA, INTEL, NVIDIA};

/// The accelerators of one vendor. Other display controllers are consoles of a BMC or a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accelerator {
    /// The PCI vendor ID.
    pub vendor: u16,
    /// The classes of its accelerators.
    pub class: PciClass,
}

/// A PCI class: a base class (`12`), with its subclass (`1200`) or with its programming interface too
/// (`120000`), as in sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciClass {
    bits: u32,
    /// How many of the 24 bits of a class count, from the highest: 8, 16 or 24.
    known: u8,
}

/// A text is no PCI class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI class: it has 2, 4 or 6 hexadecimal digits, for example 1200")]
pub struct ParsePciClassError(String);

const GPU: PciClass = PciClass { bits: DISPLAY << 16, known: 8 };
const PROCESSOR: PciClass = PciClass { bits: ACCELERATOR << 16, known: 8 };

impl Accelerator {
    /// What every graph knows.
    pub const BUILT_IN: &[Self] = &[
        Self { vendor: NVIDIA, class: GPU },
        Self { vendor: NVIDIA, class: PROCESSOR },
        Self { vendor: AMD, class: GPU },
        Self { vendor: AMD, class: PROCESSOR },
        Self { vendor: INTEL, class: GPU },
        Self { vendor: INTEL, class: PROCESSOR },
        Self { vendor: HABANA, class: PROCESSOR },
    ];

    /// Returns true if a function with this vendor ID and this class (24 bits) is one.
    pub fn is(self, vendor: u16, class: u32) -> bool {
        self.vendor == vendor && self.class.contains(class)
    }
}

impl PciClass {
    /// Returns true if a class of 24 bits is this one.
    pub fn contains(self, class: u32) -> bool {
        (class ^ self.bits) >> (24 - self.known) == 0
    }
}

impl FromStr for PciClass {
    type Err = ParsePciClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let known = match digits.len() {
            2 => 8,
            4 => 16,
            6 => 24,
            _ => return Err(ParsePciClassError(text.to_owned())),
        };
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex);
        let value = value.ok_or_else(|| ParsePciClassError(text.to_owned()))?;
        Ok(Self { bits: value << (24 - known), known })
    }
}

impl fmt::Display for PciClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.known / 4);
        write!(f, "{:0digits$x}", self.bits >> (24 - self.known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_a_base_a_subclass_and_an_interface() {
        let contains = |text: &str, class| text.parse::<PciClass>().unwrap().contains(class);
        for (text, inside, outside) in [
            ("12", 0x12_0001, 0x03_0200),
            ("1200", 0x12_00ff, 0x12_0100),
            ("0x0302", 0x03_0200, 0x03_0000),
            ("120001", 0x12_0001, 0x12_0000),
        ] {
            assert!(contains(text, inside), "{text} {inside:06x}");
            assert!(!contains(text, outside), "{text} {outside:06x}");
            let parsed: PciClass = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text.trim_start_matches("0x"));
        }
        for text in ["", "1", "120", "gpu!", "+1", "0x", "12000000"] {
            assert!(text.parse::<PciClass>().is_err(), "{text}");
        }
    }
}
