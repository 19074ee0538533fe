//! Moves interfaces back to the host and restores the settings that the plan recorded.
//!
//! An interface that could not be moved back is an error and is tried again. Once it is
//! back, nothing waits for the restore; what could not be restored is reported.

use crate::kernel::attach::identity::{alternative_names, at_home, in_pod, name_of};
use crate::kernel::attach::known::Indices;
use crate::kernel::attach::link::{all, by_index, inside, to_namespace};
use crate::kernel::attach::names::{added_names, remove_names};
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::setting::{Home, Sources};
use crate::kernel::attach::settings::NotRestored;
use crate::kernel::attach::{AttachError, children, ebpf, rdma, settings};
use crate::model::host_link::HostLink;
use crate::model::plan::{Child, PlannedDevice, PlannedLink};
use netlink_packet_route::link::LinkMessage;
use rtnetlink::{Handle, LinkUnspec};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait until the kernel has given back the devices of a namespace that
/// ended, which it does asynchronously (`cleanup_net`).
pub const KERNEL_RETURN: Duration = Duration::from_secs(3);
/// Polling interval meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// A name that the kernel completes with a free number.
const ANY_NAME: &str = "dranet%d";

/// How long to wait for interfaces that are not on the host yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// For those of hardware. A pod can have moved one into a namespace of its own, which ends with it.
    pub hardware: Duration,
    /// For those that were created for the pod.
    pub created: Duration,
}

/// What happened to an interface.
#[derive(Debug)]
pub enum Returned {
    /// The host has it, without these settings.
    Home(Vec<NotRestored>),
    /// It was created for the pod and is removed.
    Removed,
    /// It no longer exists: it was unplugged, or it was virtual and ended with its
    /// namespace.
    Gone,
}

/// Moves the claim's devices from the pod's namespace to the host's; [`restore`] then
/// restores their state. An error of one device does not stop the others. `indices` are
/// the claim's interfaces in the pod: another interface with the same name belongs to the
/// pod.
pub fn leave(
    devices: &[&PlannedDevice],
    indices: &Indices,
    host: &NetNs,
    pod: &NetNs,
) -> Result<(), AttachError> {
    if host.is_same(pod)? {
        return Ok(());
    }
    pod.run(async |handle| {
        let inside = inside(&handle).await?;
        let mut left = Ok(());
        for device in devices {
            left = left.and(leave_one(&handle, device, (&inside, indices), host).await);
        }
        left
    })
}

/// Undoes [`enter`](super::enter) in reverse order.
async fn leave_one(
    handle: &Handle,
    device: &PlannedDevice,
    (inside, indices): (&[LinkMessage], &Indices),
    host: &NetNs,
) -> Result<(), AttachError> {
    match &device.link {
        Some(link @ PlannedLink { child: None, .. }) => {
            if let Some(found) = in_pod(inside, link, indices) {
                // With all of its properties.
                if let Some(found) = by_index(handle, found.header.index).await? {
                    move_home(handle, &found, &link.host, host).await?;
                }
            }
        }
        Some(link @ PlannedLink { child: Some(child), .. }) => {
            // An IPoIB child that has lost its mark is found by its parent.
            let is_kept = *child == Child::IpoIb && link.mark.is_some();
            let found = in_pod(inside, link, indices).filter(|_| is_kept);
            let index = found.map(|found| found.header.index);
            children::remove(handle, link, *child, index).await?;
        }
        None => {}
    }
    let moving = device.moving_rdma();
    moving.map_or(Ok(()), |moving| rdma::send(&moving.name, host, "host's").map(drop))
}

/// Moves the interface back with its former name and index, unless another interface of the
/// host has taken them meanwhile. Alternative names that the pod added stay behind.
async fn move_home(
    handle: &Handle,
    found: &LinkMessage,
    former: &HostLink,
    host: &NetNs,
) -> Result<(), AttachError> {
    let (name, index) = (name_of(found), found.header.index);
    let down = LinkUnspec::new_with_index(index).nocontroller().down().build();
    let set = handle.link().set(down).execute().await;
    set.map_err(|source| AttachError::netlink(name, "set it down", source))?;
    // What stays attached is reported after the move.
    if let Some(kept) = &former.carried.programs {
        let _ = ebpf::detach_others(handle, name, found, kept).await;
    }
    let added = added_names(former, found);
    // If one stays, the last attempt removes all.
    let _ = remove_names(handle, found, &added).await;
    let former_index = Some(former.identity.index);
    let mut moved = Ok(());
    for (name, new_index, with_names) in [
        (former.name.as_str(), former_index, true),
        (former.name.as_str(), None, true),
        (ANY_NAME, None, true),
        (ANY_NAME, None, false),
    ] {
        if !with_names {
            let names: Vec<_> = alternative_names(found).into_iter().collect();
            let _ = remove_names(handle, found, &names).await;
        }
        let message = to_namespace(index, host, name, new_index);
        moved = handle.link().set(message).execute().await;
        // The kernel may have moved it although it refused the name.
        if moved.is_ok() || by_index(handle, index).await?.is_none() {
            return Ok(());
        }
    }
    moved.map_err(|source| {
        AttachError::netlink(name, "move it to the host's network namespace", source)
    })
}

/// Restores the host's interfaces, wherever the kernel has put them, and reports what
/// happened to each. Those from a namespace that still exists are back at once. `sysctl` is the
/// directory in which the kernel's settings can be written.
pub fn restore(
    devices: &[&PlannedDevice],
    host: &NetNs,
    patience: Patience,
    sysctl: &Path,
    mut tell: impl FnMut(&PlannedLink, Returned) + Send,
) -> Result<(), AttachError> {
    let now = Instant::now();
    let (hardware, created) = (now + patience.hardware, now + patience.created);
    host.run(async |handle| {
        let sources = &Sources::default();
        for link in devices.iter().filter_map(|device| device.link.as_ref()) {
            let returned = match link.child {
                Some(child) => {
                    remove_returned(&handle, link, child, created).await?;
                    Returned::Removed
                }
                None => match find(&handle, &link.host, hardware).await? {
                    Some(found) => {
                        // If that fails, the restore says so.
                        let _ = free_name(&handle, devices, &link.host, &found).await;
                        let (handle, found) = (&handle, &found);
                        let home = Home { handle, link, found, sources, sysctl };
                        Returned::Home(settings::restore(&home).await)
                    }
                    None => Returned::Gone,
                },
            };
            tell(link, returned);
        }
        Ok(())
    })
}

/// Removes a child that the kernel may have moved to the host when its namespace ended,
/// as it does with IP over InfiniBand.
async fn remove_returned(
    handle: &Handle,
    link: &PlannedLink,
    child: Child,
    deadline: Instant,
) -> Result<(), AttachError> {
    let mut look = tokio::time::interval(LOOK);
    while link.mark.is_some() {
        look.tick().await;
        if children::remove(handle, link, child, None).await? || Instant::now() >= deadline {
            break;
        }
    }
    Ok(())
}

/// Finds the interface on the host. An interface with a device may appear late, and with the
/// name that the pod gave it. All interfaces share one deadline.
async fn find(
    handle: &Handle,
    host: &HostLink,
    deadline: Instant,
) -> Result<Option<LinkMessage>, AttachError> {
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        if let Some(found) = at_home(&all(handle).await?, host) {
            return Ok(Some(found.clone()));
        }
        if host.parent.is_none() || Instant::now() >= deadline {
            return Ok(None);
        }
    }
}

/// Takes an interface's former name from another interface of the claim, which gets its own later: when
/// the pod's namespace ends, the kernel returns interfaces under the names that they had there.
async fn free_name(
    handle: &Handle,
    devices: &[&PlannedDevice],
    host: &HostLink,
    found: &LinkMessage,
) -> Result<(), AttachError> {
    if name_of(found) == host.name {
        return Ok(());
    }
    let links = all(handle).await?;
    let others = devices.iter().filter_map(|device| device.link.as_ref());
    let others = others.filter(|link| link.child.is_none() && link.host.name != host.name);
    let mut at_home = others.filter_map(|link| at_home(&links, &link.host));
    let Some(holder) = at_home.find(|link| name_of(link) == host.name) else { return Ok(()) };
    let other = LinkUnspec::new_with_index(holder.header.index).down().name(ANY_NAME);
    let renamed = handle.link().set(other.build()).execute().await;
    renamed.map_err(|source| AttachError::netlink(&host.name, "free its name", source))
}
