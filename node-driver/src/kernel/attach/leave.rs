//! Moves interfaces back to the host and restores the name, MTU, hardware address,
//! features, settings, addresses, routes, neighbours and up/down state that the plan
//! recorded.
//!
//! An interface that could not be moved back is an error and is tried again. Once it is
//! back, nothing waits for the restore; what could not be restored is reported.

use crate::kernel::attach::ethtool::tuning;
use crate::kernel::attach::identity::{alternative_names, at_home, in_pod, name_of};
use crate::kernel::attach::known::Indices;
use crate::kernel::attach::link::{
    add_address, add_neighbor, add_route, all, by_index, inside, properties, set_attributes,
    to_namespace,
};
use crate::kernel::attach::napi::Reader;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::{AttachError, carried, children, ebpf, ethtool, rdma, settings};
use crate::model::host_link::{HostLink, HostRoute};
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
    /// The host has it. The errors say what could not be restored.
    Home(Vec<AttachError>),
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
    let wrap = |verb: &'static str| move |source| AttachError::netlink(name, verb, source);
    let down = LinkUnspec::new_with_index(index).nocontroller().down().build();
    handle.link().set(down).execute().await.map_err(wrap("set it down"))?;
    // What stays attached is reported after the move.
    if let Some(kept) = former.carried.as_ref().and_then(|carried| carried.programs.as_ref()) {
        let _ = ebpf::detach_others(handle, name, found, kept).await;
    }
    let added = carried::added_names(former.carried.as_ref(), found);
    // If one stays, the last attempt removes all.
    let _ = carried::remove_names(handle, found, &added).await;
    let former_index = former.identity.as_ref().map(|it| it.index);
    let mut moved = Ok(());
    for (name, new_index, with_names) in [
        (former.name.as_str(), former_index, true),
        (former.name.as_str(), None, true),
        (ANY_NAME, None, true),
        (ANY_NAME, None, false),
    ] {
        if !with_names {
            let names: Vec<_> = alternative_names(found).into_iter().collect();
            let _ = carried::remove_names(handle, found, &names).await;
        }
        let message = to_namespace(index, host, name, new_index);
        moved = handle.link().set(message).execute().await;
        // The kernel may have moved it although it refused the name.
        if moved.is_ok() || by_index(handle, index).await?.is_none() {
            return Ok(());
        }
    }
    moved.map_err(wrap("move it to the host's network namespace"))
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
        let readers = Readers::open(devices);
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
                        Returned::Home(restore_one(&handle, link, &found, &readers, sysctl).await)
                    }
                    None => Returned::Gone,
                },
            };
            tell(link, returned);
        }
        Ok(())
    })
}

/// Readers of drivers' settings, for all interfaces of a claim: each has a socket.
struct Readers {
    tuning: Option<tuning::Reader>,
    polling: Option<Reader>,
}

impl Readers {
    /// Opens those that the plan has settings for. Must run on a thread in the host's namespace.
    fn open(devices: &[&PlannedDevice]) -> Self {
        let hosts = || devices.iter().filter_map(|device| Some(&device.link.as_ref()?.host));
        let has_tuning = hosts().any(|host| host.tuning.is_some());
        let has_polling = hosts().any(|host| host.napi.is_some());
        Self {
            tuning: has_tuning.then(tuning::Reader::open),
            polling: has_polling.then(Reader::open),
        }
    }
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

/// Restores one interface. Returns the errors of what could not be restored.
async fn restore_one(
    handle: &Handle,
    link: &PlannedLink,
    found: &LinkMessage,
    readers: &Readers,
    sysctl: &Path,
) -> Vec<AttachError> {
    let (host, index) = (&link.host, found.header.index);
    let mut lacking = Vec::new();
    let mut tried = |outcome: Result<(), AttachError>| lacking.extend(outcome.err());
    // First, because one of them may be the interface's former name.
    let added = carried::added_names(host.carried.as_ref(), found);
    tried(carried::remove_names(handle, found, &added).await);
    tried(rename(handle, host, found).await);
    if let Some(former) = &host.carried {
        for outcome in carried::restore(handle, &host.name, former, found).await {
            tried(outcome);
        }
        if link.config.interface.disable_ebpf_programs != Some(true) {
            let programs = [former, &carried::read(found)];
            for outcome in ebpf::restore(handle, &host.name, index, programs).await {
                tried(outcome);
            }
        }
    }
    for outcome in set_properties(handle, host, found).await {
        tried(outcome);
    }
    if let Some(former) = &host.ethtool {
        tried(ethtool::restore(&host.name, former));
    }
    // Before the instances of polling, which are those of the channels.
    if let Some((reader, former)) = readers.tuning.as_ref().zip(host.tuning.as_ref()) {
        for outcome in reader.restore(&host.name, former) {
            tried(outcome);
        }
    }
    for outcome in settings::restore(handle, host, found, sysctl).await {
        tried(outcome);
    }
    for address in host.addresses.iter().filter(|address| address.seconds.is_none()) {
        tried(add_address(handle, &host.name, index, address).await);
    }
    if host.up {
        let up = LinkUnspec::new_with_index(index).up().build();
        tried(
            handle
                .link()
                .set(up)
                .execute()
                .await
                .map_err(|source| AttachError::netlink(&host.name, "set it up", source)),
        );
        for route in in_order(&host.routes) {
            tried(add_route(handle, &host.name, index, route, Vec::new()).await);
        }
    }
    for neighbor in &host.neighbors {
        tried(add_neighbor(handle, &host.name, index, neighbor).await);
    }
    // Last, because instances exist only while the interface is up.
    if let Some((reader, former)) = readers.polling.as_ref().zip(host.napi.as_ref()) {
        for outcome in reader.restore(&host.name, index, former) {
            tried(outcome);
        }
    }
    lacking
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

async fn rename(handle: &Handle, host: &HostLink, found: &LinkMessage) -> Result<(), AttachError> {
    let name = name_of(found);
    if name == host.name {
        return Ok(());
    }
    let verb = format!("rename it to `{}`", host.name);
    let rename = LinkUnspec::new_with_index(found.header.index).down().name(&host.name).build();
    handle
        .link()
        .set(rename)
        .execute()
        .await
        .map_err(|source| AttachError::netlink(name, verb, source))
}

async fn set_properties(
    handle: &Handle,
    host: &HostLink,
    found: &LinkMessage,
) -> Vec<Result<(), AttachError>> {
    let attributes = properties(Some(host.mtu), host.hardware_addr.as_ref(), host.sizes);
    set_attributes(handle, &host.name, found, attributes).await
}

/// Direct routes first, because gateways of the others are reached by them. Routes of the
/// host's DHCP client are left out; they come back with its lease.
fn in_order(routes: &[HostRoute]) -> impl Iterator<Item = &HostRoute> {
    let kept = || routes.iter().filter(|route| route.protocol != PROTOCOL_DHCP);
    let direct = kept().filter(|route| route.is_direct());
    direct.chain(kept().filter(|route| !route.is_direct()))
}

/// `RTPROT_DHCP`.
const PROTOCOL_DHCP: u8 = 16;
