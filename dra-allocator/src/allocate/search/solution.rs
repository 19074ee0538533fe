//! The solution of a search.

use smallvec::SmallVec;

use super::super::shares::Shares;

/// A device that was chosen.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocate) struct Chosen {
    pub(in crate::allocate) candidate: usize,
    pub(in crate::allocate) ask: usize,
    /// True if it is a share of the device.
    pub(in crate::allocate) is_share: bool,
}

/// The chosen devices and subrequests.
#[derive(Debug)]
pub(in crate::allocate) struct Solution {
    /// The chosen devices, claim by claim.
    pub(in crate::allocate) chosen: SmallVec<[Chosen; 4]>,
    /// For each request the index of its subrequest, claim by claim.
    pub(in crate::allocate) subrequests: SmallVec<[usize; 4]>,
    /// The capacity that shares take.
    pub(in crate::allocate) shares: Shares,
}
