//! The machine's part of preparation, without the API server. One claim is handled at a
//! time, across all instances of the driver: each call reads the state from the
//! checkpoint under a file lock, so an instance that takes over sees what the other one
//! left.

mod abandoned;
mod boot;
mod hooks;
mod late;
mod renewal;
mod state;
mod strayed;

use crate::facts::cloud;
use crate::facts::host;
use crate::facts::network::server::ApiServers;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::pod_resources::PodDevices;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::rdma::NetnsMode;
use crate::kernel::attach::{AttachError, ethtool, multipath, rdma, virtual_function_settings};
use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::plan::Plan;
use crate::prepare::cdi;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice, base_request};
use crate::prepare::companions::joined;
use crate::prepare::effects::Effects;
use crate::prepare::error::PrepareError;
use crate::prepare::interfaces;
use crate::prepare::inventory::Inventory;
use crate::prepare::late::LateNics;
use crate::prepare::metrics::PluginMetrics;
use crate::prepare::notices::Subject;
use crate::prepare::plan::{Facts, Policy, plan};
use crate::prepare::published::SliceDevices;
use crate::prepare::uppers::with_uppers;
use crate::prepare::wiring::wiring;
pub use abandoned::Abandoned;
use cluster_model::drivers::accelerators;
use late::BoundClaim;
use node_files::boot::{boot_id, is_this_machine};
use node_files::turn;
use process::chain::Chain;
use publication::cloud::CloudMetadata;
use publication::network::NetworkFacts;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use topology_graph::{HostRoot, Overlay, Snapshot, Topology};

/// A device as reported to the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The request that it satisfies, without subrequest.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// The ID of its share.
    pub share_id: Option<String>,
    /// The CDI device that the runtime injects.
    pub cdi_id: String,
}

/// Tells the version of a vendor's driver that is being loaded now on the machine with this root, if any is ever
/// loaded. No claim is prepared then.
pub type LoadingDriver = Option<fn(&HostRoot) -> Option<String>>;

/// The machine's part of preparation: files, interfaces, checkpoint.
#[derive(Debug)]
pub struct LocalPreparer {
    /// The root below which the machine is read.
    pub host: HostRoot,
    /// The ports of RDMA devices that do not answer.
    pub ports: KnownPorts,
    /// Addresses of the API servers, whose route must stay with the host.
    pub servers: ApiServers,
    /// Interfaces that were uplinks in this boot, and the operator's choice.
    pub uplinks: Uplinks,
    /// Whether a vendor's driver is being loaded.
    pub loading: LoadingDriver,
    /// What the administrator allows pods to get.
    pub policy: Policy,
    /// Namespaces whose claims may use settings with effects beyond their pods.
    pub network_namespaces: Vec<String>,
    /// Applies plans.
    pub effects: Effects,
    /// Metrics.
    pub metrics: PluginMetrics,
    /// Claims that have ended, although the checkpoint could not be written.
    pub ended: Ended,
    /// Claims that have no object any more.
    pub abandoned: Abandoned,
    /// The NICs that claims do not name.
    pub late: LateNics,
}

/// UIDs of claims that have ended, although the checkpoint still has them.
#[derive(Debug, Default)]
pub struct Ended(Mutex<BTreeSet<String>>);

impl Ended {
    pub(super) fn add(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
    }

    /// Removes them from a checkpoint that was read.
    fn remove_from(&self, checkpoint: &mut Checkpoint) {
        let ended = self.lock();
        checkpoint.claims.retain(|uid, _| !ended.contains(uid));
    }

    /// Forgets them after the checkpoint was written without them.
    fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalPreparer {
    /// Returns the devices of a claim that is already prepared, after rewriting files that are
    /// missing, differ, or have kernel names of before.
    pub fn prepared(&self, uid: &str) -> Result<Option<Vec<PreparedDevice>>, PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        self.renew(&mut checkpoint, uid)?;
        let record = checkpoint.claims.get(uid).filter(|record| record.phase == Phase::Prepared);
        let Some(record) = record else { return Ok(None) };
        if !self.effects.is_applied(&record.plan) {
            self.effects.apply(&record.plan)?;
        }
        Ok(Some(self.devices(&record.plan)))
    }

    /// Reads the machine.
    pub fn read(&self) -> Result<Snapshot, PrepareError> {
        Ok(host::snapshot(&self.host, &self.ports)?)
    }

    /// Remembers which devices have an interface now, before a network plugin may take one.
    pub fn remember_interfaces(&self) -> Result<(), PrepareError> {
        let machine = self.read()?;
        let _turn = self.turn()?;
        let inventory = Inventory::new(&machine, &NetworkFacts::default(), &self.host);
        interfaces::remember(&self.effects.paths.interfaces(), &inventory, &self.load()?)?;
        Ok(())
    }

    /// Prepares nothing while a vendor's driver replaces modules. It records this under the same
    /// lock, after it has seen that no claim is prepared.
    fn check_vendor_driver(&self, claim: &AllocatedClaim) -> Result<(), PrepareError> {
        match self.loading.and_then(|loading| loading(&self.host)) {
            Some(version) => {
                Err(PrepareError::VendorDriver { claim: claim.claim.clone(), version })
            }
            None => Ok(()),
        }
    }

    /// Prepares a claim on a machine that was just read. If an effect fails, undoes it.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        published: &SliceDevices,
        machine: &Snapshot,
    ) -> Result<Plan, PrepareError> {
        self.prepare_for(claim, published, machine, None)
    }

    /// The same for a pod with these devices of device plugins, which decide which NICs a claim gets
    /// that names none.
    pub fn prepare_for(
        &self,
        claim: &AllocatedClaim,
        published: &SliceDevices,
        machine: &Snapshot,
        devices: Option<&PodDevices>,
    ) -> Result<Plan, PrepareError> {
        let _turn = self.turn()?;
        self.check_vendor_driver(claim)?;
        let mut checkpoint = self.load()?;
        let uid = claim.claim.uid.clone();
        if let Some(unfinished) = checkpoint.claims.get(&uid).cloned() {
            let _claim = self.try_claim(&unfinished.plan.claim)?;
            self.unwind(&mut checkpoint, &uid, &unfinished.plan)?;
        }
        self.restore_functions(&mut checkpoint)?;
        let bound = self.bind(claim, published, machine, (&checkpoint, devices))?;
        check_restored(&bound.claim, &checkpoint)?;
        let planned = self.plan(&bound, machine, &checkpoint);
        // The snapshot may lack a device that another claim has given back since.
        let (plan, changed) = planned.or_else(|_| self.plan(&bound, &self.read()?, &checkpoint))?;
        self.effects.faults.reached("prepare:checkpoint:before");
        // All else is files, and those without a record are removed at start.
        if plan.functions().next().is_some() {
            self.set(&mut checkpoint, &plan, Phase::Preparing)?;
        }
        self.effects.faults.reached("prepare:checkpoint:after");
        let set = self.effects.set_functions(&plan);
        let applied = set.and_then(|()| self.effects.apply(&plan)).map_err(PrepareError::from);
        let rewritten = applied.and_then(|()| self.rewrite_companions(&mut checkpoint, &changed));
        if let Err(error) =
            rewritten.and_then(|()| self.set(&mut checkpoint, &plan, Phase::Prepared))
        {
            if let Err(undo) = self.unwind(&mut checkpoint, &uid, &plan) {
                let claim = &plan.claim;
                tracing::warn!(%claim, error = %Chain(&undo), "Failed to undo; trying again");
                if let Err(error) = self.set(&mut checkpoint, &plan, Phase::Preparing) {
                    tracing::warn!(%claim, error = %Chain(&error), "Failed to record that");
                }
            }
            return Err(error);
        }
        self.effects.faults.reached("prepare:done");
        self.tell_unkept(&plan);
        Ok(plan)
    }

    /// Reports what the host loses when the claim's interfaces move, and what the pod does not get of them.
    fn tell_unkept(&self, plan: &Plan) {
        for link in plan.links().filter(|link| link.child.is_none()) {
            let (name, claim) = (&link.host.name, &plan.claim);
            if !link.host.disciplines.is_empty() {
                let kinds: Vec<_> = link.host.disciplines.iter().map(String::as_str).collect();
                let text = format!(
                    "interface `{name}` has traffic control on the host ({}), which the kernel drops when \
                     the interface moves into the pod of claim `{claim}`; set it up again afterwards, or \
                     keep the NIC out of the published devices",
                    kinds.join(", "),
                );
                self.effects.notices.add(Subject::NotKept, text);
            }
            if !link.host.left_out.is_empty() {
                let text = format!(
                    "the pod of claim `{claim}` does not get all of interface `{name}`: a network \
                     configuration cannot say {}; the host keeps it, and the pod works without it",
                    link.host.left_out.join("; "),
                );
                self.effects.notices.add(Subject::NotKept, text);
            }
        }
    }

    /// Rewrites the files of the pod's other claims, which describe the new claim too.
    fn rewrite_companions(
        &self,
        checkpoint: &mut Checkpoint,
        changed: &[Plan],
    ) -> Result<(), PrepareError> {
        for plan in changed {
            self.set(checkpoint, plan, Phase::Prepared)?;
            self.effects.apply(plan)?;
        }
        Ok(())
    }

    /// Undoes what was prepared, when no hook attaches it any more. An unknown claim needs nothing.
    pub fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        let _claim = turn::take_claim(&self.effects.paths.claim(uid))?;
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let Some(record) = checkpoint.claims.get(uid).cloned() else {
            self.abandoned.forget(uid);
            return Ok(());
        };
        self.effects.faults.reached("unprepare:checkpoint:before");
        // Undoing frees room, and can be repeated.
        let noted = self.set(&mut checkpoint, &record.plan, Phase::Unpreparing);
        self.unless_full("the checkpoint", noted)?;
        self.effects.faults.reached("unprepare:checkpoint:after");
        self.unwind(&mut checkpoint, uid, &record.plan)?;
        self.abandoned.forget(uid);
        self.effects.faults.reached("unprepare:done");
        Ok(())
    }

    /// Runs work while no other instance works.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, PrepareError> {
        let _turn = self.turn()?;
        Ok(work())
    }

    pub(super) fn count(&self, checkpoint: &Checkpoint) {
        let (claims, namespaces) = (checkpoint.claims.len(), self.effects.namespaces.count());
        self.metrics.claims.set(i64::try_from(claims).unwrap_or(i64::MAX));
        self.metrics.namespaces.set(i64::try_from(namespaces).unwrap_or(i64::MAX));
    }

    /// The graph of the machine, completed for the cloud's machine type.
    fn topology(&self, machine: &Snapshot) -> Topology {
        let cloud = cloud::source::kept(&self.host);
        let machine_type = cloud.as_ref().and_then(CloudMetadata::machine_type);
        let overlay = machine_type.and_then(Overlay::built_in);
        Topology::build_with(machine, overlay.as_ref(), accelerators()).0
    }

    fn plan(
        &self,
        bound: &BoundClaim,
        machine: &Snapshot,
        checkpoint: &Checkpoint,
    ) -> Result<(Plan, Vec<Plan>), PrepareError> {
        let BoundClaim { claim, published, .. } = bound;
        let host = NetNs::current()?;
        let network = self.effects.network.read(&host, &self.servers.now())?;
        let interfaces = with_uppers(self.uplinks.complete(network.facts()), checkpoint);
        let mut inventory = Inventory::new(machine, &interfaces, &self.host);
        inventory.had_interface =
            interfaces::remember(&self.effects.paths.interfaces(), &inventory, checkpoint)?;
        self.effects.faults.reached("prepare:interfaces:after");
        let asking = claim.devices.iter().filter(|device| device.asks_for("virtualFunction"));
        let asking: Vec<_> = asking.map(|device| device.device.as_str()).collect();
        inventory.find_functions(&asking, &self.host, |link: &str, index: u32| {
            virtual_function_settings::read(&host, link, index)
        })?;
        self.check_answers(claim, &inventory)?;
        let names: Vec<_> =
            claim.devices.iter().filter_map(|device| netdev(&inventory, device)).collect();
        let mut links = self.effects.network.links(&network, &host, &names)?;
        let in_pods = checkpoint.claims.values().flat_map(|record| record.plan.links());
        let in_pods = in_pods.filter(|link| link.child.is_none()).map(|link| &link.host);
        let in_pods: Vec<_> = in_pods.collect();
        for link in links.values_mut() {
            multipath::complete(link, &in_pods);
        }
        let asking = claim.devices.iter().filter(|device| device.asks_for("ethtool"));
        let asking = asking.filter_map(|device| netdev(&inventory, device));
        let asking = asking.filter(|name| links.contains_key(name));
        let abilities = ethtool::read_all(&host, asking.collect())?;
        let held: Vec<_> = checkpoint.claims.values().map(|record| &record.plan).collect();
        let netns_mode = self.netns_mode()?;
        let boot_id = boot_id(&self.host);
        // The cloud's answer during this boot.
        let cloud = cloud::source::kept(&self.host);
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &abilities,
            netns_mode,
            held: &held,
            policy: self.policy,
            boot_id: boot_id.as_deref(),
            cloud_nics: cloud.as_ref().map(CloudMetadata::nics).unwrap_or_default(),
        };
        let mut plan = plan(claim, &facts).map_err(|source| PrepareError::Plan {
            claim: claim.claim.clone(),
            source: Box::new(source),
        })?;
        plan.plugin_gpus.clone_from(&bound.gpus);
        let driver = &self.effects.paths.driver;
        plan.unlimit_whole(|device| published.bandwidth(driver, &device.pool, &device.device));
        let topology = match &bound.topology {
            Some(topology) => topology,
            None => &self.topology(machine),
        };
        Ok(joined(&plan, checkpoint, |whole| wiring(whole, driver, topology, published)))
    }

    /// A device that does not answer would block the pod, and this work too.
    fn check_answers(
        &self,
        claim: &AllocatedClaim,
        inventory: &Inventory,
    ) -> Result<(), PrepareError> {
        let unresponsive = self.ports.unresponsive();
        for device in &claim.devices {
            let nic = inventory.nic(&device.device);
            let rdma = nic.and_then(|nic| nic.rdma.as_ref());
            if let Some(rdma) = rdma.filter(|rdma| unresponsive.contains(&rdma.name)) {
                return Err(PrepareError::Unresponsive {
                    claim: claim.claim.clone(),
                    device: device.device.clone(),
                    rdma: rdma.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// A recorded machine has no kernel to ask.
    fn netns_mode(&self) -> Result<NetnsMode, AttachError> {
        if !is_this_machine(&self.host) {
            return Ok(NetnsMode::Shared);
        }
        rdma::netns_mode().map_err(|source| AttachError::System {
            verb: "read the mode of the RDMA subsystem".to_owned(),
            source,
        })
    }

    /// A plan's devices as reported to the kubelet.
    pub fn devices(&self, plan: &Plan) -> Vec<PreparedDevice> {
        let driver = &self.effects.paths.driver;
        plan.devices
            .iter()
            .map(|device| PreparedDevice {
                request: base_request(&device.request).to_owned(),
                pool: device.pool.clone(),
                device: device.allocated().to_owned(),
                share_id: device.share_id.clone(),
                cdi_id: cdi::device_id(driver, plan, device),
            })
            .collect()
    }

    /// Undoes the effects, then removes the claim from the checkpoint.
    fn unwind(
        &self,
        checkpoint: &mut Checkpoint,
        uid: &str,
        plan: &Plan,
    ) -> Result<(), PrepareError> {
        self.effects.undo(plan)?;
        checkpoint.add_unrestored(plan);
        self.restore_functions(checkpoint)?;
        for left in checkpoint.unrestored.iter().filter(|it| it.claim.uid == uid) {
            let reason = format!(
                "physical function `{}` is in a pod; the driver tries again when that pod ends",
                left.function.physical
            );
            self.effects.tell_unrestored(left, &reason);
        }
        self.effects.faults.reached("unprepare:functions:after");
        checkpoint.claims.remove(uid);
        self.effects.notices.settle(uid);
        match self.store(checkpoint) {
            Err(error) if error.is_full() => {
                self.ended.add(uid);
                self.unless_full("the checkpoint", Err(error))
            }
            stored => stored,
        }
    }

    /// Reports that something could not be written because the disk is full, and continues.
    pub(crate) fn unless_full<E: Into<PrepareError>>(
        &self,
        what: &str,
        written: Result<(), E>,
    ) -> Result<(), PrepareError> {
        let error = match written.map_err(Into::into) {
            Ok(()) => {
                self.effects.notices.settle(what);
                return Ok(());
            }
            Err(error) if error.is_full() => error,
            Err(error) => return Err(error),
        };
        let text = format!("{}; the driver continues and tries again", Chain(&error));
        tracing::warn!(error = %Chain(&error), "Disk full");
        self.effects.notices.add_new(Subject::NotUndone, what, text);
        Ok(())
    }

    /// Restores virtual functions whose claims have ended, if their physical functions are
    /// on the host.
    pub(super) fn restore_functions(
        &self,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), PrepareError> {
        checkpoint.unrestored = self.effects.restore_functions(&checkpoint.unrestored)?;
        Ok(())
    }

    /// The pods' namespaces that are held open.
    pub fn namespaces(&self) -> &Arc<Namespaces> {
        &self.effects.namespaces
    }
}

/// The name of a device's interface.
fn netdev(inventory: &Inventory, device: &AllocatedDevice) -> Option<String> {
    Some(inventory.nic(&device.device)?.link_name()?.to_owned())
}

/// Refuses a virtual function that still has settings of an earlier claim.
fn check_restored(claim: &AllocatedClaim, checkpoint: &Checkpoint) -> Result<(), PrepareError> {
    let names: BTreeSet<_> = claim.devices.iter().map(|device| &device.device).collect();
    let unrestored = checkpoint.unrestored.iter().find(|it| names.contains(&it.device));
    unrestored.map_or(Ok(()), |it| {
        Err(PrepareError::Unrestored {
            claim: claim.claim.clone(),
            unrestored: Box::new(it.clone()),
        })
    })
}
