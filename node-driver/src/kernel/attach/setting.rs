//! A setting of a host's interface that a pod's use may change: it is read before the pod gets the
//! interface, and restored afterwards. [`settings`](super::settings) lists all of them.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::identity::name_of;
use crate::kernel::generic::Family;
use crate::kernel::net_sysfs::Interfaces;
use crate::kernel::network::Dump;
use crate::model::host_link::HostLink;
use crate::model::plan::PlannedLink;
use futures::future::LocalBoxFuture;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::neighbour_table::NeighbourTableMessage;
use rtnetlink::Handle;
use std::cell::OnceCell;
use std::path::Path;

/// A setting, or several that the kernel has in one place.
pub(super) trait Setting {
    /// Its name in events and in the documentation.
    fn name(&self) -> &'static str;

    /// Reads it into the interface's state. A setting that only the claim's configuration changes is
    /// recorded with that.
    fn read(&self, _found: &Found<'_>, _host: &mut HostLink) {}

    /// Restores what differs from the interface's former state. Returns the result of each write.
    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a>;
}

/// The results of writes.
pub(super) type Restored<'a> = LocalBoxFuture<'a, Vec<Result<(), AttachError>>>;

/// What settings of an interface are read from.
pub(super) struct Found<'a> {
    /// The interface.
    pub(super) link: &'a LinkMessage,
    /// The namespace.
    pub(super) dump: &'a Dump,
    /// The neighbours of its interfaces.
    pub(super) neighbors: &'a [NeighbourMessage],
    /// How it asks for them.
    pub(super) tables: &'a [NeighbourTableMessage],
    pub(super) sources: &'a Sources,
}

impl Found<'_> {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        name_of(self.link)
    }

    /// Its index.
    pub(super) fn index(&self) -> u32 {
        self.link.header.index
    }
}

/// An interface that is back on the host.
pub(super) struct Home<'a> {
    /// A socket in the host's namespace.
    pub(super) handle: &'a Handle,
    /// What the pod was given, with the former state.
    pub(super) link: &'a PlannedLink,
    /// The interface as the kernel returned it.
    pub(super) found: &'a LinkMessage,
    pub(super) sources: &'a Sources,
    /// Directory with the kernel's network settings, writable.
    pub(super) sysctl: &'a Path,
}

impl Home<'_> {
    /// The state to restore.
    pub(super) fn former(&self) -> &HostLink {
        &self.link.host
    }

    /// Its name on the host.
    pub(super) fn name(&self) -> &str {
        &self.former().name
    }

    /// Its index.
    pub(super) fn index(&self) -> u32 {
        self.found.header.index
    }

    /// Sends a change of the interface.
    pub(super) async fn set(
        &self,
        message: LinkMessage,
        verb: impl Into<String>,
    ) -> Result<(), AttachError> {
        let set = self.handle.link().set(message).execute().await;
        set.map_err(|source| AttachError::netlink(self.name(), verb, source))
    }
}

/// Where settings are read and written besides rtnetlink, in the calling thread's namespace: opened when
/// first used, for all interfaces of a claim.
#[derive(Debug, Default)]
pub(super) struct Sources {
    ethtool: OnceCell<Option<Family>>,
    netdev: OnceCell<Option<Family>>,
    sysfs: OnceCell<Option<Interfaces>>,
}

impl Sources {
    /// Ethtool netlink; `None` if the kernel does not have it.
    pub(super) fn ethtool(&self) -> Option<&Family> {
        self.ethtool.get_or_init(|| Family::open("ethtool").ok()).as_ref()
    }

    /// The family `netdev`; `None` on kernels before 6.3.
    pub(super) fn netdev(&self) -> Option<&Family> {
        self.netdev.get_or_init(|| Family::open("netdev").ok()).as_ref()
    }

    /// Interfaces in sysfs.
    pub(super) fn sysfs(&self) -> Option<&Interfaces> {
        self.sysfs.get_or_init(|| Interfaces::open().ok()).as_ref()
    }
}
