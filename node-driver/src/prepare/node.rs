//! The machine's side of preparation, without a cluster: one claim at a time, over all
//! instances of the driver. State is read from the checkpoint at each call, under a file
//! lock: an instance that takes over sees what the other left.

mod boot;
mod hooks;
mod state;

use crate::facts::cloud::{self, CloudMetadata};
use crate::facts::host::{self, is_this_machine};
use crate::facts::network::server::ApiServers;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::host_links::HostNetwork;
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::rdma::NetnsMode;
use crate::kernel::attach::{AttachError, ethtool, functions, rdma};
use crate::kubelet::metrics::PluginMetrics;
use crate::prepare::checkpoint::{Checkpoint, Phase};
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice, base_request};
use crate::prepare::companions::joined;
use crate::prepare::effects::Effects;
use crate::prepare::error::PrepareError;
use crate::prepare::inventory::Inventory;
use crate::prepare::plan::{Facts, Plan, PlannedDevice, Policy, plan};
use crate::prepare::published::Published;
use crate::prepare::wiring::wiring;
use crate::runtime::cdi;
use process::chain::Chain;
use std::sync::Arc;
use topology_graph::{HostRoot, Overlay, Snapshot, Topology};

/// A device as the kubelet is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The request that it satisfies, without subrequest.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Which share of it.
    pub share_id: Option<String>,
    /// What the runtime is to inject.
    pub cdi_id: String,
}

/// The machine's side: files, interfaces, checkpoint.
#[derive(Debug)]
pub struct Node {
    /// Where the machine is read.
    pub host: HostRoot,
    /// The ports of RDMA devices that do not answer.
    pub ports: KnownPorts,
    /// Where the API servers are, to which the host keeps its way.
    pub servers: ApiServers,
    /// What the operator lets pods have.
    pub policy: Policy,
    /// The namespaces whose claims may set what reaches beyond their pods.
    pub network_namespaces: Vec<String>,
    /// What plans do.
    pub effects: Effects,
    /// What is counted.
    pub metrics: PluginMetrics,
}

impl Node {
    /// The devices of a claim that is prepared already, its files whole again.
    pub fn prepared(&self, uid: &str) -> Result<Option<Vec<PreparedDevice>>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
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

    /// Prepares a claim, on a machine that was read a moment ago. What a failed effect
    /// leaves is undone.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        published: &Published,
        machine: &Snapshot,
    ) -> Result<Plan, PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let uid = claim.claim.uid.clone();
        if let Some(unfinished) = checkpoint.claims.get(&uid).cloned() {
            self.unwind(&mut checkpoint, &uid, &unfinished.plan)?;
        }
        let planned = self.plan(claim, published, machine, &checkpoint);
        // What another claim has given back since then was not there yet.
        let again = |_| self.plan(claim, published, &self.read()?, &checkpoint);
        let (plan, changed) = planned.or_else(again)?;
        self.effects.faults.reached("prepare:checkpoint:before");
        self.set(&mut checkpoint, &plan, Phase::Preparing)?;
        self.effects.faults.reached("prepare:checkpoint:after");
        let set = self.effects.set_functions(&plan);
        let applied = set.and_then(|()| self.effects.apply(&plan)).map_err(PrepareError::from);
        let told = applied.and_then(|()| self.tell(&mut checkpoint, &changed));
        if let Err(error) = told.and_then(|()| self.set(&mut checkpoint, &plan, Phase::Prepared)) {
            if let Err(undo) = self.unwind(&mut checkpoint, &uid, &plan) {
                let claim = &plan.claim;
                tracing::warn!(%claim, error = %Chain(&undo), "Not undone; trying again");
            }
            return Err(error);
        }
        self.effects.faults.reached("prepare:done");
        Ok(plan)
    }

    /// Other claims of the pod, whose containers are told of a new one too.
    fn tell(&self, checkpoint: &mut Checkpoint, changed: &[Plan]) -> Result<(), PrepareError> {
        for plan in changed {
            self.set(checkpoint, plan, Phase::Prepared)?;
            self.effects.apply(plan)?;
        }
        Ok(())
    }

    /// Undoes what was prepared; of a claim that is not known nothing is there.
    pub fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let Some(record) = checkpoint.claims.get(uid).cloned() else { return Ok(()) };
        self.effects.faults.reached("unprepare:checkpoint:before");
        self.set(&mut checkpoint, &record.plan, Phase::Unpreparing)?;
        self.effects.faults.reached("unprepare:checkpoint:after");
        self.unwind(&mut checkpoint, uid, &record.plan)?;
        self.effects.faults.reached("unprepare:done");
        Ok(())
    }

    /// Runs work that no other instance may do at the same time.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, PrepareError> {
        let _turn = self.turn()?;
        Ok(work())
    }

    pub(super) fn count(&self, checkpoint: &Checkpoint) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.claims.set(whole(checkpoint.claims.len()));
        self.metrics.namespaces.set(whole(self.effects.namespaces.count()));
    }

    fn plan(
        &self,
        claim: &AllocatedClaim,
        published: &Published,
        machine: &Snapshot,
        checkpoint: &Checkpoint,
    ) -> Result<(Plan, Vec<Plan>), PrepareError> {
        let host = NetNs::current()?;
        let network = HostNetwork::read(&host, &self.servers.now())?;
        let interfaces = network.facts();
        let inventory = Inventory::with(machine, &self.host)
            .with_virtual(&interfaces)
            .with_imex(self.policy.imex_channel, &self.host)
            .with_physical_mtus(machine, &interfaces);
        let asking = claim.devices.iter().filter(|device| device.asks_for("virtualFunction"));
        let asking: Vec<_> = asking.map(|device| device.device.as_str()).collect();
        let settings = |link: &str, index: u32| functions::read(&host, link, index);
        let inventory = inventory.with_functions(&asking, machine, &self.host, settings)?;
        self.check_answers(claim, &inventory)?;
        let netdev =
            |device: &AllocatedDevice| inventory.devices.get(&device.device)?.netdev.clone();
        let names: Vec<_> = claim.devices.iter().filter_map(netdev).collect();
        let links = network.links(&host, &names)?;
        let asking = claim.devices.iter().filter(|device| device.asks_for("ethtool"));
        let asking = asking.filter_map(netdev).filter(|name| links.links.contains_key(name));
        let abilities = ethtool::read_all(&host, asking.collect())?;
        let held: Vec<_> = checkpoint.claims.values().map(|record| &record.plan).collect();
        let netns_mode = self.netns_mode()?;
        let boot_id = host::boot_id(&self.host);
        // What it has said during this boot.
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
        let wrap =
            |source| PrepareError::Plan { claim: claim.claim.clone(), source: Box::new(source) };
        let mut plan = plan(claim, &facts).map_err(wrap)?;
        let driver = &self.effects.paths.driver;
        plan.free_whole(|device| published.bandwidth(driver, &device.pool, &device.device));
        let machine_type = cloud.as_ref().and_then(CloudMetadata::machine_type);
        let overlay = machine_type.and_then(Overlay::built_in);
        let (topology, _) = Topology::build(machine, overlay.as_ref());
        Ok(joined(&plan, checkpoint, |whole| wiring(whole, driver, &topology, published)))
    }

    /// A pod would hang on a device that does not answer, and so would what is done here.
    fn check_answers(
        &self,
        claim: &AllocatedClaim,
        inventory: &Inventory,
    ) -> Result<(), PrepareError> {
        let unresponsive = self.ports.unresponsive();
        for device in &claim.devices {
            let nic = inventory.devices.get(&device.device);
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
        let wrap = |source| AttachError::System {
            verb: "ask the RDMA subsystem for its mode".to_owned(),
            source,
        };
        rdma::netns_mode().map_err(wrap)
    }

    /// A plan's devices as the kubelet is told of them.
    pub fn devices(&self, plan: &Plan) -> Vec<PreparedDevice> {
        let driver = &self.effects.paths.driver;
        let device = |device: &PlannedDevice| PreparedDevice {
            request: base_request(&device.request).to_owned(),
            pool: device.pool.clone(),
            device: device.device.clone(),
            share_id: device.share_id.clone(),
            cdi_id: cdi::device_id(driver, plan, device),
        };
        plan.devices.iter().map(device).collect()
    }

    /// Undoes the effects and forgets the claim, in this order.
    fn unwind(
        &self,
        checkpoint: &mut Checkpoint,
        uid: &str,
        plan: &Plan,
    ) -> Result<(), PrepareError> {
        self.effects.undo(plan)?;
        checkpoint.claims.remove(uid);
        self.store(checkpoint)
    }

    /// The pods' namespaces that are held.
    pub fn namespaces(&self) -> &Arc<Namespaces> {
        &self.effects.namespaces
    }
}
