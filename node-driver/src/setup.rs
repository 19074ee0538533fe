//! What prepares the host, as the driver calls it. The feature `host-setup` builds crate `host-setup` in; a
//! driver without it finds a host that is prepared.

#[cfg(feature = "host-setup")]
mod allocated;
#[cfg(feature = "host-setup")]
mod built_in;

use crate::args::Args;
use crate::facts::ports::KnownPorts;
use crate::prepare::local::LoadingDriver;
#[cfg(feature = "host-setup")]
use host_setup::vendor_driver::state::loading;
use kube::Client;
use publication::host_setup::HostSetup;
use std::sync::Arc;
use tokio::sync::Notify;
use topology_graph::HostRoot;

#[cfg(feature = "host-setup")]
pub(crate) use built_in::ProgramNode;

/// What the setup is started with.
#[cfg_attr(not(feature = "host-setup"), expect(dead_code, reason = "nothing is started"))]
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
#[cfg(feature = "host-setup")]
pub(crate) const LOADING: LoadingDriver = Some(loading);

/// No driver is ever loaded.
#[cfg(not(feature = "host-setup"))]
pub(crate) const LOADING: LoadingDriver = None;
