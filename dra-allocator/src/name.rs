//! Names of attributes and capacities, pools, devices and claims.
//!
//! Names are shared strings (`Arc<str>`): copies are cheap, and the index holds each string once.
//! The rules are those of `QualifiedName` and `FullyQualifiedName` in
//! `k8s.io/api/resource/v1/types.go`. The API server validates names; this crate does not.

use std::fmt;
use std::sync::Arc;

/// The name of an attribute or a capacity: `<id>` or `<domain>/<id>`.
///
/// A name without a domain belongs to the domain of the driver that publishes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName(Arc<str>);

impl QualifiedName {
    /// Creates a name from its text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first slash, if any.
    pub fn domain(&self) -> Option<&str> {
        self.0.split_once('/').map(|(domain, _)| domain)
    }

    /// The part after the first slash, or the whole name.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, id)| id)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A pool of devices: driver and name. Pools sort in allocation order (`sortPoolsByID` in
/// `pools_incubating.go`: bytewise).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// The driver that publishes the pool.
    pub driver: Arc<str>,
    /// The name of the pool, unique per driver.
    pub pool: Arc<str>,
}

impl PoolId {
    /// The device with this name in the pool.
    pub(crate) fn device(&self, device: &Arc<str>) -> DeviceId {
        DeviceId { driver: self.driver.clone(), pool: self.pool.clone(), device: device.clone() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// A device in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The driver that publishes the device.
    pub driver: Arc<str>,
    /// The pool that the device is in.
    pub pool: Arc<str>,
    /// The name of the device, unique in its pool.
    pub device: Arc<str>,
}

impl DeviceId {
    /// Creates an id from driver, pool and device name.
    pub fn new(
        driver: impl Into<Arc<str>>,
        pool: impl Into<Arc<str>>,
        device: impl Into<Arc<str>>,
    ) -> Self {
        Self { driver: driver.into(), pool: pool.into(), device: device.into() }
    }

    /// The pool of the device.
    pub fn pool_id(&self) -> PoolId {
        PoolId { driver: self.driver.clone(), pool: self.pool.clone() }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// The namespace and name of a claim; the namespace is empty if unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimName {
    /// The namespace; may be empty.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ClaimName {
    /// Creates the name of a claim in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// Prints `namespace/name`, or `name` alone, as `klog.KObj` does.
impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
