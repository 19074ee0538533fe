//! What prepares the host, as those see it who publish its NICs.

use crate::network::NetworkFacts;
use crate::notice::Notice;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::{Instant, SystemTime};
use topology_graph::{HostCondition, Snapshot};

/// Prepares the host.
pub trait HostSetup: Debug + Send + Sync {
    /// Does what is due, and says what it means for NICs.
    fn look<'a>(&'a mut self, machine: Machine<'a>) -> Looked<'a>;

    /// Records that the result of the last look has been published.
    fn published(&mut self, now: Instant);

    /// Whether the first publication must wait: slices from before a reboot contain the virtual functions
    /// that are being created now.
    fn is_awaited(&self, now: Instant) -> bool;

    /// When to look again without an event.
    fn next_change(&self, now: Instant) -> Option<Instant>;

    /// Takes the notices since the last call.
    fn notices(&mut self) -> Vec<Notice>;

    /// The number of virtual functions that are wanted but missing.
    fn missing_functions(&self) -> i64;

    /// When something outside the driver has changed last, to be asked again and again.
    fn stamp(&self) -> Box<dyn Fn() -> Option<SystemTime> + Send>;
}

/// The result of a look.
pub type Looked<'a> = Pin<Box<dyn Future<Output = SetUp> + Send + 'a>>;

/// What is known at a look.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has none")]
pub struct Machine<'a> {
    /// Its PCI functions, interfaces and RDMA devices.
    pub snapshot: &'a Snapshot,
    /// The host's interfaces.
    pub network: &'a NetworkFacts,
    /// Whether a device was published before.
    pub is_known: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether claims have NICs of the node.
    pub has_claims: bool,
    /// The time.
    pub now: Instant,
}

/// What the setup means for NICs. By default nothing prepares the host.
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
