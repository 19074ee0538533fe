//! Extended capabilities of a function's configuration space: what its ports do
//! with peer requests (ACS), and whether it translates addresses (ATS).
//!
//! Only single words are read, since each one is a transaction on the bus. Beyond
//! the first 64 bytes the kernel gives them to root only; without them nothing is
//! known. Numbers: `include/uapi/linux/pci_regs.h`.

use std::collections::BTreeSet;

use super::tree::Tree;
use crate::snapshot::AcsControl;

const EXTENDED: u32 = 0x100;
const SPACE: u32 = 0x1000;
/// Each capability is at least two words (`pci_find_next_ext_capability`).
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

/// The capabilities of one function.
struct List {
    /// Their numbers and offsets.
    capabilities: Vec<(u32, u32)>,
    /// Whether the list was read to its end, so that what is not there is absent.
    is_whole: bool,
}

pub(super) fn extended(sys: &mut Tree, path: &str) -> Extended {
    let file = format!("{path}/config");
    let list = list(sys, &file);
    // A port without ACS redirects nothing, a function without ATS does not translate.
    let mut control = |capability| control(sys, &file, &list, capability);
    Extended {
        acs: control(ACS).map(AcsControl),
        ats_enabled: control(ATS).map(|control| control & ATS_ENABLE != 0),
    }
}

/// Follows the list. Offsets need not ascend: PLX switches have `100, fb4, 138, …, f24`.
fn list(sys: &mut Tree, file: &str) -> List {
    let mut visited = BTreeSet::new();
    let mut capabilities = Vec::new();
    let mut offset = EXTENDED;
    while offset >= EXTENDED {
        // A list that leads back into itself has no end.
        let is_new = visited.len() < MOST_CAPABILITIES && visited.insert(offset);
        let header = is_new.then(|| sys.word(file, offset)).flatten();
        // All ones: the function does not answer.
        let Some(header) = header.filter(|header| *header != u32::MAX) else {
            return List { capabilities, is_whole: false };
        };
        capabilities.push((header & 0xffff, offset));
        offset = header >> 20 & !3;
    }
    List { capabilities, is_whole: true }
}

/// The control register of a capability; nothing is set where there is no such
/// capability, and nothing is known where it was not found in a part of the list.
fn control(sys: &mut Tree, file: &str, list: &List, capability: u32) -> Option<u16> {
    match list.capabilities.iter().find(|(number, _)| *number == capability) {
        Some((_, offset)) => sys.word(file, offset + CONTROL).map(|word| (word >> 16) as u16),
        None => list.is_whole.then_some(0),
    }
}
