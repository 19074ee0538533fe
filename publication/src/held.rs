//! Which devices pods have.

use std::collections::BTreeMap;

/// The parts of a device that are in a pod, or on the way there or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its network interface.
    pub interface: bool,
    /// Its RDMA device.
    pub rdma: bool,
}

/// The devices that claims have allocated, by device name.
pub type Held = BTreeMap<String, Holding>;
