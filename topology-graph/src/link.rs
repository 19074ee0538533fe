//! PCIe link speed and width, as sysfs and NCCL write them.
//!
//! Encoding overheads: PCI Express Base Specification, 8b/10b up to 5 GT/s,
//! 128b/130b up to 32 GT/s, 242/256 flits at 64 GT/s.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The speed and width of a PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PcieLink {
    /// Mega-transfers per second and lane: 32000 is 32 GT/s, PCIe 5.
    pub megatransfers: u32,
    /// The number of lanes.
    pub width: u8,
}

impl PcieLink {
    /// Parses a speed and a lane count; `None` if either is unknown.
    pub fn parse(speed: &str, width: &str) -> Option<Self> {
        let link = Self { megatransfers: parse_speed(speed)?, width: width.parse().ok()? };
        (link.width > 0).then_some(link)
    }

    /// The speed as sysfs writes it: `32.0 GT/s PCIe`.
    pub(crate) fn speed(self) -> String {
        format!("{}.{} GT/s PCIe", self.megatransfers / 1_000, self.megatransfers % 1_000 / 100)
    }

    /// The fastest link that both ends support.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        let megatransfers = self.megatransfers.min(other.megatransfers);
        Self { megatransfers, width: self.width.min(other.width) }
    }

    /// The capacity in one direction, in megabytes per second.
    pub fn megabytes_per_second(self) -> u32 {
        let lane = match self.megatransfers {
            0..=5_000 => self.megatransfers / 10,
            5_001..=32_000 => self.megatransfers * 16 / 130,
            _ => self.megatransfers / 8 * 242 / 256,
        };
        lane * u32::from(self.width)
    }
}

/// `32.0 GT/s x16`.
impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { megatransfers, width } = self;
        write!(f, "{}.{} GT/s x{width}", megatransfers / 1_000, megatransfers % 1_000 / 100)
    }
}

/// Parses `32.0 GT/s PCIe`, `16 GT/s`, `2.5 GT/s`; `None` for `Unknown` and the like.
fn parse_speed(text: &str) -> Option<u32> {
    let (number, unit) = text.split_once(' ')?;
    if !unit.starts_with("GT/s") {
        return None;
    }
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = whole.parse().ok().filter(|whole| *whole < 1_000)?;
    let tenths: u32 = tenths.parse().ok().filter(|tenths| *tenths < 10)?;
    Some(whole * 1_000 + tenths * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_what_both_ends_support() {
        let link = |speed, width| PcieLink::parse(speed, width).unwrap();
        let slot = link("16.0 GT/s PCIe", "16");
        let nic = link("32.0 GT/s PCIe", "8");
        let both = link("16.0 GT/s PCIe", "8");
        assert_eq!((nic.common(slot), slot.common(nic)), (both, both));
    }

    #[test]
    fn speeds_and_bandwidths() {
        // Per direction, in the table of the PCI-SIG: 4, 15.75, 31.5, 63 GB/s.
        for (speed, width, expected) in [
            ("5.0 GT/s PCIe", "8", Some(4_000)),
            ("2.5 GT/s", "1", Some(250)),
            ("8 GT/s", "16", Some(15_744)),
            ("16.0 GT/s PCIe", "16", Some(31_504)),
            ("32.0 GT/s PCIe", "16", Some(63_008)),
            ("64.0 GT/s PCIe", "16", Some(120_992)),
            ("Unknown", "16", None),
            ("Unknown speed", "255", None),
            ("", "0", None),
            ("8 GT/s", "0", None),
            ("8 GB/s", "1", None),
        ] {
            let found = PcieLink::parse(speed, width).map(PcieLink::megabytes_per_second);
            assert_eq!(found, expected, "{speed} x{width}");
        }
    }
}
