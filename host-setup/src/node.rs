//! What the setup asks of the node's driver: who uses which NICs.

use futures::future::BoxFuture;
use publication::network::NetworkFacts;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::io;

/// An error of the driver.
pub type DriverError = Box<dyn Error + Send + Sync>;

/// What is known on the node without its driver running.
pub trait Node: Debug + Send + Sync {
    /// The claims that are prepared or on their way, as `namespace/name`.
    ///
    /// # Errors
    /// It cannot be told, which must not look like none.
    fn claims(&self) -> io::Result<BTreeSet<String>>;

    /// The names of all devices that these claims have in any way.
    ///
    /// # Errors
    /// As for [`Self::claims`].
    fn held(&self) -> io::Result<BTreeSet<String>>;

    /// The interfaces of this machine.
    fn network(&self) -> BoxFuture<'_, Result<NetworkFacts, DriverError>>;
}

/// The driver, of which the setup is a part.
pub trait Driver: Debug + Send + Sync {
    /// The devices of this node that are allocated in the cluster, each with its claim, `namespace/name`.
    fn allocated(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, DriverError>>;

    /// Leaves a function out of reads of the machine, by its directory below the sysfs mount, until the value
    /// is dropped.
    fn changing(&self, directory: &str) -> Box<dyn Any + Send>;

    /// Sets the GUIDs of the virtual functions of the physical function with this interface.
    ///
    /// # Errors
    /// The kernel refuses.
    fn give_guids(&self, link: &str, guids: &[u64]) -> Result<(), DriverError>;

    /// Marks a point at which a test kills the driver.
    fn reached(&self, point: &str);
}
