//! What claims ask of the kernel about interfaces: to read those of the host, to move them into a pod and
//! back, and to restore them. The steps of a claim call it by a trait, so that a test can play the kernel, and
//! end a process before any of its effects.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::configure::configure;
use crate::kernel::attach::dhcp::Leases;
use crate::kernel::attach::enter::{self, Entered};
use crate::kernel::attach::host_links::{self, HostNetwork};
use crate::kernel::attach::known::{BeforeAttach, Indices};
use crate::kernel::attach::leave::{self, Patience, Returned};
use crate::kernel::attach::netns::NetNs;
use crate::model::host_link::HostLink;
use crate::model::plan::{Plan, PlannedDevice, PlannedLink};
use cluster_model::network_config::LinkName;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// Records the indices that interfaces will have in the pod, before the first of them moves, and only if
/// something moves.
pub type Journal<'a> = dyn FnMut(&Indices) -> Result<(), AttachError> + Send + 'a;
/// Hears what has happened to an interface.
pub type Tell<'a> = dyn FnMut(&PlannedLink, Returned) + Send + 'a;

/// The interfaces of this node and its pods.
pub trait NodeNetwork: fmt::Debug + Send + Sync {
    /// Reads the host's namespace. `servers` are the API servers, whose route must stay with the host.
    fn read(&self, host: &NetNs, servers: &BTreeSet<IpAddr>) -> Result<HostNetwork, AttachError>;

    /// The interfaces of these names, in the state to restore.
    fn links(
        &self,
        network: &HostNetwork,
        host: &NetNs,
        names: &[String],
    ) -> Result<BTreeMap<String, HostLink>, AttachError>;

    /// Whether the host has each of these interfaces, under whatever name.
    fn are_home(&self, host: &NetNs, links: &[&HostLink]) -> Result<Vec<bool>, AttachError>;

    /// Whether all interfaces of the claim are in the pod, also if the pod has renamed them.
    fn are_inside(&self, plan: &Plan, links: &Indices, pod: &NetNs) -> Result<bool, AttachError>;

    /// Moves what is not in the pod yet. `entered` has what has moved, or may have moved, also after an error.
    fn enter<'p>(
        &self,
        plan: &'p Plan,
        namespaces: [&NetNs; 2],
        entered: &mut Entered<'p>,
        journal: &mut Journal<'_>,
    ) -> Result<(), AttachError>;

    /// Configures these interfaces in the pod. Returns the leases that DHCP servers have given now.
    fn configure(
        &self,
        plan: &Plan,
        known: BeforeAttach<'_>,
        due: &BTreeSet<&LinkName>,
        pod: &NetNs,
    ) -> Result<Leases, AttachError>;

    /// Moves the devices from the pod to the host. An error of one does not stop the others.
    fn leave(
        &self,
        devices: &[&PlannedDevice],
        indices: &Indices,
        namespaces: [&NetNs; 2],
    ) -> Result<(), AttachError>;

    /// Restores the host's interfaces, wherever the kernel has put them.
    fn restore(
        &self,
        devices: &[&PlannedDevice],
        host: &NetNs,
        wait_and_sysctl: (Patience, &Path),
        tell: &mut Tell<'_>,
    ) -> Result<(), AttachError>;

    /// Moves what the claim's devices have in the host's namespace into the pod's, and configures it. If a
    /// later step fails, moves it back. Of devices that are known to be attached, only those move that the
    /// host has again. Returns the leases that DHCP servers have given now.
    fn attach(
        &self,
        plan: &Plan,
        known: BeforeAttach<'_>,
        [host, pod]: [&NetNs; 2],
        journal: &mut Journal<'_>,
    ) -> Result<Leases, AttachError> {
        let mut entered = Entered { devices: Vec::new(), links: known.links.clone() };
        let attached = self.enter(plan, [host, pod], &mut entered, journal);
        let known = BeforeAttach { links: &entered.links, ..known };
        let moved = entered.devices.iter().filter_map(|device| device.link.as_ref());
        let moved: Vec<&PlannedLink> = moved.collect();
        let due = plan.links().filter(|link| !known.is_attached || moved.contains(link));
        let due = due.map(|link| &link.name).collect();
        let attached = attached.and_then(|()| self.configure(plan, known, &due, pod));
        if attached.is_err() {
            // Report the first error; what cannot go back now goes back when the claim is
            // unprepared.
            let at_once = (Patience::default(), known.sysctl);
            let _ = self.leave(&entered.devices, &entered.links, [host, pod]);
            let _ = self.restore(&entered.devices, host, at_once, &mut |_, _| {});
        }
        attached
    }
}

/// The kernel's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelNetwork;

impl NodeNetwork for KernelNetwork {
    fn read(&self, host: &NetNs, servers: &BTreeSet<IpAddr>) -> Result<HostNetwork, AttachError> {
        HostNetwork::read(host, servers)
    }

    fn links(
        &self,
        network: &HostNetwork,
        host: &NetNs,
        names: &[String],
    ) -> Result<BTreeMap<String, HostLink>, AttachError> {
        network.links(host, names)
    }

    fn are_home(&self, host: &NetNs, links: &[&HostLink]) -> Result<Vec<bool>, AttachError> {
        host_links::are_home(host, links)
    }

    fn are_inside(&self, plan: &Plan, links: &Indices, pod: &NetNs) -> Result<bool, AttachError> {
        enter::are_inside(plan, links, pod)
    }

    fn enter<'p>(
        &self,
        plan: &'p Plan,
        namespaces: [&NetNs; 2],
        entered: &mut Entered<'p>,
        journal: &mut Journal<'_>,
    ) -> Result<(), AttachError> {
        enter::enter(plan, namespaces, entered, journal)
    }

    fn configure(
        &self,
        plan: &Plan,
        known: BeforeAttach<'_>,
        due: &BTreeSet<&LinkName>,
        pod: &NetNs,
    ) -> Result<Leases, AttachError> {
        configure(plan, known, due, pod)
    }

    fn leave(
        &self,
        devices: &[&PlannedDevice],
        indices: &Indices,
        [host, pod]: [&NetNs; 2],
    ) -> Result<(), AttachError> {
        leave::leave(devices, indices, host, pod)
    }

    fn restore(
        &self,
        devices: &[&PlannedDevice],
        host: &NetNs,
        (patience, sysctl): (Patience, &Path),
        tell: &mut Tell<'_>,
    ) -> Result<(), AttachError> {
        leave::restore(devices, host, patience, sysctl, tell)
    }
}
