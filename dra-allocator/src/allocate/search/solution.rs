//! What a search finds.

use smallvec::SmallVec;

use super::super::shares::Shares;

/// A device that was chosen.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocate) struct Chosen {
    pub(in crate::allocate) candidate: usize,
    pub(in crate::allocate) ask: usize,
    /// Whether it is a share of the device.
    pub(in crate::allocate) is_share: bool,
}

/// What was chosen.
#[derive(Debug)]
pub(in crate::allocate) struct Solution {
    /// The devices of the first claim first.
    pub(in crate::allocate) chosen: SmallVec<[Chosen; 4]>,
    /// For each request the number of the subrequest, those of the first claim first.
    pub(in crate::allocate) subrequests: SmallVec<[usize; 4]>,
    /// What shares take.
    pub(in crate::allocate) shares: Shares,
}
