//! Whether the driver of the node's NICs comes in a container, and how far that is.

use crate::vendor_driver::state::VendorDriverState;

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorDriverFacts {
    /// What the vendor's container recorded in this boot.
    pub(crate) state: Option<VendorDriverState>,
    /// Whether the node's labels say that there will be such a container.
    pub(crate) is_selected: bool,
    /// Whether claims have NICs of this node.
    pub(crate) has_claims: bool,
    /// Whether this node is the one of the cluster that may be drained.
    pub(crate) has_turn: bool,
}
