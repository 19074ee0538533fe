//! Extended capabilities in a function's configuration space: how its ports route peer requests
//! (ACS), and whether it translates addresses (ATS).
//!
//! Only single words are read, since each read is a transaction on the bus. Beyond the first 64
//! bytes the kernel requires root; without it, the capabilities are unknown. Numbers:
//! `include/uapi/linux/pci_regs.h`.

use std::collections::BTreeSet;

use super::tree::Tree;
use crate::snapshot::AcsControl;

const EXTENDED: u32 = 0x100;
const SPACE: u32 = 0x1000;
/// The maximum number of capabilities; each takes at least two words
/// (`pci_find_next_ext_capability`).
const MOST_CAPABILITIES: usize = ((SPACE - EXTENDED) / 8) as usize;

const ACS: u32 = 0x000d;
const ATS: u32 = 0x000f;
/// In both capabilities, the control register is the upper half of the second word.
const CONTROL: u32 = 4;
const ATS_ENABLE: u16 = 1 << 15;

/// The known extended capabilities of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) acs: Option<AcsControl>,
    pub(super) ats_enabled: Option<bool>,
}

/// The capabilities of one function.
struct List {
    /// Their IDs and offsets.
    capabilities: Vec<(u32, u32)>,
    /// True if the list was read to its end, so that a missing capability is absent.
    is_whole: bool,
}

pub(super) fn extended(sys: &mut Tree, path: &str) -> Extended {
    let file = format!("{path}/config");
    let list = list(sys, &file);
    // A port without ACS redirects nothing; a function without ATS does not translate.
    Extended {
        acs: control(sys, &file, &list, ACS).map(AcsControl),
        ats_enabled: control(sys, &file, &list, ATS).map(|control| control & ATS_ENABLE != 0),
    }
}

/// Reads the list. Offsets need not ascend: PLX switches have `100, fb4, 138, …, f24`.
fn list(sys: &mut Tree, file: &str) -> List {
    let mut visited = BTreeSet::new();
    let mut capabilities = Vec::new();
    let mut offset = EXTENDED;
    while offset >= EXTENDED {
        // Stops if the list loops.
        let is_new = visited.len() < MOST_CAPABILITIES && visited.insert(offset);
        let header = is_new.then(|| sys.word(file, offset)).flatten();
        // All ones: the function does not respond.
        let Some(header) = header.filter(|header| *header != u32::MAX) else {
            return List { capabilities, is_whole: false };
        };
        capabilities.push((header & 0xffff, offset));
        offset = header >> 20 & !3;
    }
    List { capabilities, is_whole: true }
}

/// The control register of a capability: 0 if the capability is absent, `None` if the list is
/// incomplete.
fn control(sys: &mut Tree, file: &str, list: &List, capability: u32) -> Option<u16> {
    match list.capabilities.iter().find(|(number, _)| *number == capability) {
        Some((_, offset)) => sys.word(file, offset + CONTROL).map(|word| (word >> 16) as u16),
        None => list.is_whole.then_some(0),
    }
}
