//! Into the pod: what the claim's devices have in the host's namespace moves into the
//! pod's, or is made there.
//!
//! Each namespace is entered once for all devices, since entering takes a thread and a
//! socket. What is there decides first what is due, so that what cannot be done is refused
//! before anything has moved.

use crate::attach::dhcp::Leases;
use crate::attach::link::{all, by_name};
use crate::attach::netns::NetNs;
use crate::attach::{AttachError, children, configure, leave, rdma};
use crate::prepare::plan::{Child, Plan, PlannedDevice, PlannedLink};
use netlink_packet_route::link::LinkMessage;
use rtnetlink::{Handle, LinkUnspec};
use rustix::fd::{AsFd, AsRawFd};
use std::collections::{BTreeMap, BTreeSet};

/// Moves what the claim's devices have in the host's namespace into the pod's,
/// and configures it. What moved is moved back where a later step fails.
///
/// Returns what DHCP servers have given now; `known` is what they had given before.
pub fn attach(
    plan: &Plan,
    known: &Leases,
    host: &NetNs,
    pod: &NetNs,
) -> Result<Leases, AttachError> {
    let mut entered = Vec::new();
    let attached = enter(plan, host, pod, &mut entered);
    let attached = attached.and_then(|()| configure::configure(plan, known, pod));
    if attached.is_err() {
        // The first error is the one to tell; what cannot go back now goes back when the
        // claim is unprepared.
        let _ = leave::leave(&entered, host, pod);
        let _ = leave::restore(&entered, host, |_, _| {});
    }
    attached
}

/// `entered` are the devices of which something has moved, or may have.
fn enter<'p>(
    plan: &'p Plan,
    host: &NetNs,
    pod: &NetNs,
    entered: &mut Vec<&'p PlannedDevice>,
) -> Result<(), AttachError> {
    let inside = pod.run(async |handle| Inside::see(&handle, plan).await)?;
    host.run(async |handle| {
        let outside = outside(&handle, plan).await?;
        for (device, step) in steps(plan, &inside, &outside)? {
            entered.push(device);
            step.take(&handle, pod).await?;
        }
        Ok(())
    })
}

/// What is in the pod's namespace.
#[derive(Debug, Default)]
struct Inside {
    links: BTreeMap<String, LinkMessage>,
    /// Of the claim's RDMA devices those that are there.
    rdma: BTreeSet<String>,
}

impl Inside {
    async fn see(handle: &Handle, plan: &Plan) -> Result<Self, AttachError> {
        let mut rdma = BTreeSet::new();
        for moving in plan.devices.iter().filter_map(PlannedDevice::moving_rdma) {
            if rdma::is_here(&moving.name)? {
                rdma.insert(moving.name.clone());
            }
        }
        Ok(Self { links: all(handle).await?, rdma })
    }
}

/// The claim's interfaces that are in the host's namespace, with their indices.
async fn outside<'p>(
    handle: &Handle,
    plan: &'p Plan,
) -> Result<BTreeMap<&'p str, u32>, AttachError> {
    let mut outside = BTreeMap::new();
    for link in plan.links() {
        let found = by_name(handle, &link.host.name).await?;
        outside.extend(found.map(|found| (link.host.name.as_str(), found.header.index)));
    }
    Ok(outside)
}

/// One effect.
#[derive(Debug, PartialEq, Eq)]
enum Step<'p> {
    /// The RDMA device moves.
    Rdma(&'p str),
    /// The interface of this index moves.
    Link(&'p PlannedLink, u32),
    /// A child is made on the interface of this index.
    Child(&'p PlannedLink, Child, u32),
}

/// Decides what is to be done, in this order: of a device the RDMA device first, since one
/// that is made on an interface may not outlive the interface's move.
fn steps<'p>(
    plan: &'p Plan,
    inside: &Inside,
    outside: &BTreeMap<&str, u32>,
) -> Result<Vec<(&'p PlannedDevice, Step<'p>)>, AttachError> {
    let mut steps = Vec::new();
    for device in &plan.devices {
        let moving = device.moving_rdma().filter(|rdma| !inside.rdma.contains(&rdma.name));
        steps.extend(moving.map(|rdma| (device, Step::Rdma(&rdma.name))));
        if let Some(link) = &device.link {
            let step = step_of(link, inside, outside)?;
            steps.extend(step.map(|step| (device, step)));
        }
    }
    Ok(steps)
}

fn step_of<'p>(
    link: &'p PlannedLink,
    inside: &Inside,
    outside: &BTreeMap<&str, u32>,
) -> Result<Option<Step<'p>>, AttachError> {
    let there = inside.links.get(link.name.as_str());
    let here = outside.get(link.host.name.as_str()).copied();
    match (link.child, here, there) {
        (None, None, Some(_)) => Ok(None),
        (_, None, _) => Err(AttachError::Gone { link: link.host.name.clone() }),
        (None, Some(index), None) => Ok(Some(Step::Link(link, index))),
        (Some(child), Some(parent), None) => Ok(Some(Step::Child(link, child, parent))),
        (Some(child), Some(parent), Some(there)) if children::is_child(there, child, parent) => {
            Ok(None)
        }
        (_, Some(_), Some(_)) => Err(AttachError::NameTaken { name: link.name.clone() }),
    }
}

impl Step<'_> {
    /// Takes it, in the host's namespace.
    async fn take(self, host: &Handle, pod: &NetNs) -> Result<(), AttachError> {
        match self {
            Self::Rdma(name) => {
                let moved = rdma::send(name, pod, "pod's")?;
                moved.then_some(()).ok_or_else(|| AttachError::NoRdma { name: name.to_owned() })
            }
            Self::Link(link, index) => move_link(host, link, index, pod).await,
            Self::Child(link, child, parent) => {
                children::make(host, link, child, parent, pod).await
            }
        }
    }
}

/// One message that moves and renames, so that no third name exists in between. The kernel
/// sets the interface down meanwhile.
async fn move_link(
    host: &Handle,
    link: &PlannedLink,
    index: u32,
    pod: &NetNs,
) -> Result<(), AttachError> {
    let message = LinkUnspec::new_with_index(index)
        .setns_by_fd(pod.as_fd().as_raw_fd())
        .name(link.name.as_str())
        .build();
    let verb = "move it into the pod's network namespace";
    let wrap = |source| AttachError::netlink(&link.host.name, verb, source);
    host.link().set(message).execute().await.map_err(wrap)
}

#[cfg(test)]
mod tests;
