//! Extended capabilities of a function's configuration space: what its ports do
//! with peer requests (ACS), and whether it translates addresses (ATS).
//!
//! Only single words are read, since each one is a transaction on the bus. Beyond
//! the first 64 bytes the kernel gives them to root only; else nothing is known.
//! Numbers: `include/uapi/linux/pci_regs.h`.

use super::tree::Tree;
use crate::snapshot::AcsControl;

const EXTENDED: u32 = 0x100;
const SPACE: u32 = 0x1000;
/// Each capability is at least two words.
const MOST_CAPABILITIES: usize = ((SPACE - EXTENDED) / 8) as usize;

const ACS: u32 = 0x000d;
const ATS: u32 = 0x000f;
/// Both have their control register in the upper half of their second word.
const CONTROL: u32 = 4;
const ATS_ENABLE: u16 = 1 << 15;

/// What is known of a function's extended capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) acs: Option<AcsControl>,
    pub(super) ats_enabled: Option<bool>,
}

pub(super) fn extended(sys: &mut Tree, path: &str) -> Extended {
    let file = format!("{path}/config");
    let mut found = Extended::default();
    let mut offset = EXTENDED;
    let mut known = false;
    for _ in 0..MOST_CAPABILITIES {
        let Some(header) = sys.word(&file, offset) else { return found };
        known = true;
        // No capability at all: zeros, or ones where the function does not answer.
        if header == 0 || header == u32::MAX {
            break;
        }
        let control =
            |sys: &mut Tree| sys.word(&file, offset + CONTROL).map(|word| (word >> 16) as u16);
        match header & 0xffff {
            ACS => found.acs = control(sys).map(AcsControl),
            ATS => found.ats_enabled = control(sys).map(|control| control & ATS_ENABLE != 0),
            _ => {}
        }
        let next = header >> 20 & !3;
        if next <= offset {
            break;
        }
        offset = next;
    }
    // The whole list was seen: a port without ACS redirects nothing, a function
    // without ATS does not translate.
    if known {
        found.acs = found.acs.or(Some(AcsControl(0)));
        found.ats_enabled = found.ats_enabled.or(Some(false));
    }
    found
}
