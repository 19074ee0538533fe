//! What prepares the host, as the driver calls it. The feature `host-setup` builds crate `host-setup` in; a
//! driver without it finds a host that is prepared.

#[cfg(feature = "host-setup")]
mod built_in;

use crate::args::Args;
use crate::facts::ports::KnownPorts;
use crate::model::setup::{LoadingDriver, SetUp};
use crate::publish::events::Notice;
use futures::future::BoxFuture;
use kube::Client;
use publication::network::NetworkFacts;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::Notify;
use topology_graph::{HostRoot, Snapshot};

#[cfg(feature = "host-setup")]
pub(crate) use built_in::ProgramNode;

/// Prepares the host.
pub(crate) trait HostSetup: Debug + Send + Sync {
    /// Does what is due, and says what it means for NICs.
    fn look<'a>(&'a mut self, machine: SetupMachine<'a>) -> BoxFuture<'a, SetUp>;

    /// Records that the result of the last look has been published.
    fn published(&mut self, now: Instant);

    /// Whether the first publication must wait.
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

/// What is known at a look.
#[derive(Clone, Copy)]
pub(crate) struct SetupMachine<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) network: &'a NetworkFacts,
    /// Whether a device was published before.
    pub(crate) is_known: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether claims have NICs of the node.
    pub(crate) has_claims: bool,
    pub(crate) now: Instant,
}

/// What the setup is started with.
pub(crate) struct SetupStart<'a> {
    pub(crate) args: &'a Args,
    pub(crate) client: &'a Client,
    pub(crate) host: &'a HostRoot,
    pub(crate) ports: &'a KnownPorts,
    /// Of a recorded machine it is unknown which interfaces the host needs.
    pub(crate) is_this_machine: bool,
    pub(crate) wake: &'a Arc<Notify>,
}

/// Starts the setup that is built in.
#[cfg(feature = "host-setup")]
pub(crate) async fn start(start: SetupStart<'_>) -> Option<Box<dyn HostSetup>> {
    Some(Box::new(built_in::start(start).await))
}

/// Starts nothing.
#[cfg(not(feature = "host-setup"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn start(_: SetupStart<'_>) -> Option<Box<dyn HostSetup>> {
    None
}

/// Tells whether a vendor's driver is being loaded.
pub(crate) fn loading_driver() -> LoadingDriver {
    #[cfg(feature = "host-setup")]
    let loading = LoadingDriver(host_setup::vendor_driver::state::loading);
    #[cfg(not(feature = "host-setup"))]
    let loading = LoadingDriver::default();
    loading
}
