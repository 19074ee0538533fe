//! What the preparation of the host means for its NICs.

use std::collections::BTreeSet;
use std::fmt;
use topology_graph::{HostCondition, HostRoot};

/// What follows from a look at it. By default nothing prepares the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUp {
    /// Whether the kernel modules that were asked for are there.
    pub modules: Option<HostCondition>,
    /// Whether a vendor's driver is loaded that comes in a container.
    pub vendor_driver: Option<HostCondition>,
    /// Devices whose virtual functions are being created.
    pub not_ready: BTreeSet<String>,
    /// Devices that are not published because their driver is being loaded.
    pub withheld: BTreeSet<String>,
    /// Devices whose pods are evicted, so that their driver can be loaded.
    pub evicted: BTreeSet<String>,
}

/// Tells the version of a vendor's driver that is being loaded now. No claim is prepared then.
#[derive(Clone, Copy)]
pub struct LoadingDriver(pub fn(&HostRoot) -> Option<String>);

impl LoadingDriver {
    /// The version on the machine with this root, if any.
    pub fn version(self, host: &HostRoot) -> Option<String> {
        (self.0)(host)
    }
}

/// No driver is ever loaded.
impl Default for LoadingDriver {
    fn default() -> Self {
        Self(|_| None)
    }
}

impl fmt::Debug for LoadingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoadingDriver")
    }
}
