//! What a search finds.

use std::rc::Rc;

use crate::quantity::Quantity;

/// A device that was chosen.
#[derive(Clone, Debug)]
pub(in crate::allocate) struct Chosen {
    pub(in crate::allocate) candidate: usize,
    pub(in crate::allocate) ask: usize,
    /// For a share of a device: what it takes, in the order of the device's capacities.
    pub(in crate::allocate) share: Option<Rc<[Quantity]>>,
}

/// What was chosen.
#[derive(Debug)]
pub(in crate::allocate) struct Solution {
    /// For each claim.
    pub(in crate::allocate) chosen: Vec<Vec<Chosen>>,
    /// For each claim and request the number of the subrequest.
    pub(in crate::allocate) subrequests: Vec<Vec<usize>>,
}
