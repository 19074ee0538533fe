//! What is known of a pod's interfaces.

use crate::kernel::attach::dhcp::Leases;
pub use crate::kernel::attach::identity::Indices;
use std::path::Path;

/// What is known before a pod's interfaces are attached, some of it from earlier runs.
#[derive(Clone, Copy, Debug)]
pub struct BeforeAttach<'a> {
    /// Leases that DHCP servers have given.
    pub leases: &'a Leases,
    /// Indices of the interfaces in the pod.
    pub links: &'a Indices,
    /// Whether all of them have been attached: what the pod has changed since is left alone.
    pub is_attached: bool,
    /// Directory in which the kernel's network settings can be written.
    pub sysctl: &'a Path,
}
