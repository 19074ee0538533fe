//! Moves what the claim's devices have in the host's namespace into the pod's, or creates
//! it there.
//!
//! Each namespace is entered once for all devices, because entering takes a thread and a
//! socket. Both namespaces are read before anything moves, so that what cannot be done is
//! refused early.

use crate::kernel::attach::identity::{alternative_names, at_home, in_pod, is_called};
use crate::kernel::attach::known::Indices;
use crate::kernel::attach::link::{all, inside, to_namespace};
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::{AttachError, children, multipath, rdma, uplink};
use crate::model::plan::{Child, Plan, PlannedDevice, PlannedLink};
use cluster_model::network_config::LinkName;
use netlink_packet_route::link::LinkMessage;
use rtnetlink::Handle;
use std::collections::BTreeSet;

/// Whether all interfaces of the claim are in the pod, also if the pod has renamed them.
pub fn are_inside(plan: &Plan, links: &Indices, pod: &NetNs) -> Result<bool, AttachError> {
    if plan.links().next().is_none() {
        return Ok(true);
    }
    pod.run(async |handle| {
        let inside = inside(&handle).await?;
        Ok(plan.links().all(|link| in_pod(&inside, link, links).is_some()))
    })
}

/// What has moved, or may have moved.
#[derive(Debug)]
pub struct Entered<'p> {
    /// The devices.
    pub devices: Vec<&'p PlannedDevice>,
    /// The indices of the claim's interfaces in the pod.
    pub links: Indices,
}

/// Moves what is not in the pod yet.
///
/// `journal` records the indices that the interfaces will have in the pod, before the
/// first of them moves, and only if something moves.
pub fn enter<'p>(
    plan: &'p Plan,
    [host, pod]: [&NetNs; 2],
    entered: &mut Entered<'p>,
    journal: impl FnOnce(&Indices) -> Result<(), AttachError> + Send,
) -> Result<(), AttachError> {
    let inside = pod.run(async |handle| Inside::read(&handle, plan).await)?;
    host.run(async |handle| {
        let outside = all(&handle).await?;
        let due = due(plan, &entered.links, &inside, &outside)?;
        let moving = due.steps.iter().filter_map(|(_, step)| match step {
            Step::Link(link, moving) => Some((&link.host, moving.index)),
            _ => None,
        });
        uplink::refuse(&moving.collect::<Vec<_>>()).await?;
        for (device, step) in due.record(entered, journal)? {
            entered.devices.push(device);
            step.take(&handle, pod).await?;
        }
        Ok(())
    })
}

/// Contents of the pod's namespace.
#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) links: Vec<LinkMessage>,
    /// The claim's RDMA devices that are in it.
    pub(super) rdma: BTreeSet<String>,
}

impl Inside {
    async fn read(handle: &Handle, plan: &Plan) -> Result<Self, AttachError> {
        let mut rdma = BTreeSet::new();
        for moving in plan.devices.iter().filter_map(PlannedDevice::moving_rdma) {
            if rdma::is_here(&moving.name)? {
                rdma.insert(moving.name.clone());
            }
        }
        Ok(Self { links: inside(handle).await?, rdma })
    }

    fn named(&self, name: &LinkName) -> Option<&LinkMessage> {
        self.links.iter().find(|link| is_called(link, name.as_str()))
    }

    /// The alternative names with which an interface cannot have this name in the pod: the name
    /// itself, and those that others in the pod have.
    fn conflicting(&self, link: &LinkMessage, name: &LinkName) -> Vec<String> {
        alternative_names(link)
            .into_iter()
            .filter(|alternative| {
                *alternative == name.as_str()
                    || self.links.iter().any(|it| is_called(it, alternative))
            })
            .map(str::to_owned)
            .collect()
    }

    /// The index for an interface of this name in the pod: its own if that is free, otherwise
    /// the next free one.
    fn free_index(&self, name: &LinkName, own: u32, taken: &Indices) -> u32 {
        (own..=u32::MAX)
            .find(|index| {
                let mut others = taken.iter().filter(|(other, _)| *other != name);
                !self.links.iter().any(|link| link.header.index == *index)
                    && !others.any(|(_, taken)| taken == index)
            })
            .unwrap_or(own)
    }
}

/// One step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'p> {
    /// The RDMA device moves.
    Rdma(&'p str),
    /// The interface moves, and gets this index in the pod.
    Link(&'p PlannedLink, Moving),
    /// A child is created on the interface with this index.
    Child(&'p PlannedLink, Child, u32),
}

/// An interface that moves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moving {
    /// Its index on the host.
    pub(super) index: u32,
    /// Its index in the pod.
    pub(super) in_pod: u32,
    /// Alternative names that it cannot take along. The host gets them back.
    left: Vec<String>,
}

/// The steps, and the indices that the claim's interfaces will have in the pod.
#[derive(Debug)]
pub(super) struct Due<'p> {
    pub(super) steps: Vec<(&'p PlannedDevice, Step<'p>)>,
    pub(super) links: Indices,
}

impl<'p> Due<'p> {
    /// Records the indices, if something changes, and returns the steps.
    pub(super) fn record(
        self,
        entered: &mut Entered<'_>,
        journal: impl FnOnce(&Indices) -> Result<(), AttachError>,
    ) -> Result<Vec<(&'p PlannedDevice, Step<'p>)>, AttachError> {
        if !self.steps.is_empty() || self.links != entered.links {
            journal(&self.links)?;
        }
        entered.links = self.links;
        Ok(self.steps)
    }
}

/// Decides the steps and their order. A device's RDMA device moves first, because one
/// that is created on an interface may not survive the interface's move.
pub(super) fn due<'p>(
    plan: &'p Plan,
    known: &Indices,
    inside: &Inside,
    outside: &[LinkMessage],
) -> Result<Due<'p>, AttachError> {
    let mut due = Due { steps: Vec::new(), links: known.clone() };
    for device in &plan.devices {
        let moving = device.moving_rdma().filter(|rdma| !inside.rdma.contains(&rdma.name));
        due.steps.extend(moving.map(|rdma| (device, Step::Rdma(&rdma.name))));
        if let Some(link) = &device.link {
            let step = step_of(link, &due.links, inside, outside)?;
            if let Some(Step::Link(_, moving)) = &step {
                due.links.insert(link.name.clone(), moving.in_pod);
            }
            due.steps.extend(step.map(|step| (device, step)));
        }
    }
    // Children come last: the kernel chooses their indices among the free ones.
    due.steps.sort_by_key(|(_, step)| matches!(step, Step::Child(..)));
    Ok(due)
}

/// The step for one interface. If the host has it, it is not in the pod, whatever the pod
/// has created.
fn step_of<'p>(
    link: &'p PlannedLink,
    known: &Indices,
    inside: &Inside,
    outside: &[LinkMessage],
) -> Result<Option<Step<'p>>, AttachError> {
    // The pod may have renamed it.
    if link.mark.is_some() && in_pod(&inside.links, link, known).is_some() {
        return Ok(None);
    }
    let (Some(here), there) = (at_home(outside, &link.host), inside.named(&link.name)) else {
        let there = in_pod(&inside.links, link, known).filter(|_| link.child.is_none());
        return there
            .map(|_| None)
            .ok_or_else(|| AttachError::Gone { link: link.host.name.clone() });
    };
    let index = here.header.index;
    match (link.child, there) {
        (None, None) => {
            let in_pod = inside.free_index(&link.name, index, known);
            let left = inside.conflicting(here, &link.name);
            Ok(Some(Step::Link(link, Moving { index, in_pod, left })))
        }
        (Some(child), None) => Ok(Some(Step::Child(link, child, index))),
        (Some(child), Some(there)) if children::is_child(there, link, child, index) => Ok(None),
        (_, Some(_)) => Err(AttachError::NameTaken { name: link.name.clone() }),
    }
}

impl Step<'_> {
    /// Carries the step out, in the host's namespace.
    async fn take(self, host: &Handle, pod: &NetNs) -> Result<(), AttachError> {
        match self {
            Self::Rdma(name) => {
                let moved = rdma::send(name, pod, "pod's")?;
                moved.then_some(()).ok_or_else(|| AttachError::NoRdma { name: name.to_owned() })
            }
            Self::Link(link, moving) => move_link(host, link, &moving, pod).await,
            Self::Child(link, child, parent) => {
                children::make(host, link, child, parent, pod).await
            }
        }
    }
}

/// The kernel sets the interface down meanwhile.
async fn move_link(
    host: &Handle,
    link: &PlannedLink,
    Moving { index, in_pod, left }: &Moving,
    pod: &NetNs,
) -> Result<(), AttachError> {
    for name in left {
        let request = host.link().property_del(*index).alt_ifname(&[name]);
        let removed = request.execute().await;
        removed.map_err(|it| {
            AttachError::netlink(
                &link.host.name,
                format!("remove its alternative name `{name}`"),
                it,
            )
        })?;
    }
    multipath::spare_others(host, &link.host, *index).await?;
    let message = to_namespace(*index, pod, link.name.as_str(), Some(*in_pod));
    let verb = "move it into the pod's network namespace";
    host.link()
        .set(message)
        .execute()
        .await
        .map_err(|source| AttachError::netlink(&link.host.name, verb, source))
}

#[cfg(test)]
mod tests;
