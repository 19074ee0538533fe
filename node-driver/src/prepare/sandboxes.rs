//! Pods' sandboxes, as the container runtime tells of them by NRI: what their pods'
//! claims have goes in when one runs, and back when it stops.

use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::record::{AttachRecord, attach_recorded};
use crate::kernel::attach::{AttachMode, is_separate};
use crate::prepare::checkpoint::{Checkpoint, Phase};
use crate::prepare::durable::{self, FileError};
use crate::prepare::effects::Effects;
use crate::prepare::error::PrepareError;
use crate::prepare::node::Node;
use crate::prepare::plan::{Plan, PlannedDevice};
use crate::runtime::cdi;
use process::chain::Chain;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The host's network, for pods without one of their own.
const HOST_NETWORK: &str = "/proc/1/ns/net";

/// One sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's name for it.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Namespace and name of its pod.
    pub pod: String,
    /// Its network namespace; none where it has the host's.
    pub network: Option<PathBuf>,
    /// Whether its process runs.
    pub is_running: bool,
}

/// What a list of sandboxes leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    /// The claim's sandbox is gone: back to the host.
    Leave(String),
    /// Into the sandbox of this place in the list.
    Enter(String, usize),
}

/// Decides. `gone` are the claims whose recorded namespace has no name any more: a
/// runtime that has just started may not list every sandbox that runs.
fn due(
    checkpoint: &Checkpoint,
    records: &BTreeMap<String, AttachRecord>,
    gone: &BTreeSet<String>,
    sandboxes: &[Sandbox],
) -> Vec<Due> {
    let is_listed = |id: &String| sandboxes.iter().any(|sandbox| sandbox.id == *id);
    let has_left = |uid: &&String| {
        let sandbox = records.get(*uid).and_then(|record| record.sandbox.as_ref());
        gone.contains(*uid) && sandbox.is_some_and(|id| !is_listed(id))
    };
    let enter = |plan: &Plan| {
        let mut all = sandboxes.iter();
        let place = all.position(|it| it.is_running && is_for(plan, &it.pod_uid))?;
        Some(Due::Enter(plan.claim.uid.clone(), place))
    };
    let left = checkpoint.claims.keys().filter(has_left).cloned().map(Due::Leave);
    left.chain(moving(checkpoint).filter_map(enter)).collect()
}

/// Plans that were promised and of which something goes into the pod by NRI.
fn moving(checkpoint: &Checkpoint) -> impl Iterator<Item = &Plan> {
    let promised = checkpoint.claims.values().filter(|record| record.phase == Phase::Prepared);
    let plans = promised.map(|record| &record.plan);
    plans.filter(|plan| {
        let moves = plan.devices.iter().any(PlannedDevice::moves);
        moves && AttachMode::Nri.of(plan) == AttachMode::Nri
    })
}

fn is_for(plan: &Plan, pod_uid: &str) -> bool {
    plan.pods.iter().any(|pod| pod.uid == pod_uid)
}

impl Node {
    /// Moves into a sandbox that begins what the claims of its pod have, and tells of
    /// which. All of it or nothing.
    pub fn run_sandbox(&self, sandbox: &Sandbox) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let plans = moving(&checkpoint).filter(|plan| is_for(plan, &sandbox.pod_uid));
        self.enter_all(plans.cloned().collect(), sandbox)
    }

    /// Sees that a container that has these CDI devices finds their interfaces in its
    /// sandbox, whoever the claim was prepared for.
    pub fn create_container(
        &self,
        sandbox: &Sandbox,
        cdi_devices: &[String],
    ) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let driver = &self.effects.paths.driver;
        let is_named = |plan: &&Plan| {
            let mut ids = plan.devices.iter().map(|device| cdi::device_id(driver, plan, device));
            ids.any(|id| cdi_devices.contains(&id))
        };
        self.enter_all(moving(&checkpoint).filter(is_named).cloned().collect(), sandbox)
    }

    /// Whether a CDI device is one of this driver's.
    pub fn is_ours(&self, cdi_device: &str) -> bool {
        let kind = cdi::kind(&self.effects.paths.driver);
        cdi_device.split_once('=').is_some_and(|(of, _)| of == kind)
    }

    /// Gives the host back what is in a sandbox that ends. One that ended before, and of
    /// whose pod another runs, has nothing.
    pub fn stop_sandbox(&self, sandbox: &Sandbox) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        for (uid, record) in &checkpoint.claims {
            if self.sandbox_of(uid).as_deref() == Some(&sandbox.id) {
                self.leave(&record.plan)?;
            }
        }
        self.count(&checkpoint);
        Ok(())
    }

    /// Makes interfaces and sandboxes agree, after the runtime or this driver was away.
    /// One claim's failure is no other's: it is tried again when its container starts.
    pub fn synchronize(&self, sandboxes: &[Sandbox]) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let records = self.attach_records(&checkpoint);
        let is_gone = |record: &AttachRecord| !self.effects.namespaces.is_named(record.namespace);
        let gone = records.iter().filter(|(_, record)| is_gone(record));
        let gone = gone.map(|(uid, _)| uid.clone()).collect();
        let mut entered = Vec::new();
        for due in due(&checkpoint, &records, &gone, sandboxes) {
            let (Due::Leave(uid) | Due::Enter(uid, _)) = &due;
            let Some(record) = checkpoint.claims.get(uid) else { continue };
            let (plan, claim) = (&record.plan, &record.plan.claim);
            tracing::info!(%claim, ?due, "Synchronizing");
            let done = match due {
                Due::Leave(_) => self.leave(plan).map(|()| None),
                Due::Enter(_, place) => self.enter(plan, &sandboxes[place]),
            };
            match done {
                Ok(plan) => entered.extend(plan),
                Err(error) => tracing::warn!(%claim, error = %Chain(&error), "Not synchronized"),
            }
        }
        self.count(&checkpoint);
        Ok(entered)
    }

    fn attach_records(&self, checkpoint: &Checkpoint) -> BTreeMap<String, AttachRecord> {
        let record = |uid: &String| {
            Some((uid.clone(), AttachRecord::load(&self.effects.paths.attached(uid))?))
        };
        checkpoint.claims.keys().filter_map(record).collect()
    }

    fn enter_all(&self, plans: Vec<Plan>, sandbox: &Sandbox) -> Result<Vec<Plan>, PrepareError> {
        let mut entered: Vec<Plan> = Vec::new();
        for plan in plans {
            match self.enter(&plan, sandbox) {
                Ok(plan) => entered.extend(plan),
                Err(error) => {
                    // What cannot go back now goes back when the claim is unprepared:
                    // the first error is the one to tell.
                    let is_here = |plan: &&Plan| {
                        self.sandbox_of(&plan.claim.uid).as_deref() == Some(&sandbox.id)
                    };
                    for plan in entered.iter().chain([&plan]).filter(is_here) {
                        let _ = self.leave(plan);
                    }
                    return Err(error);
                }
            }
        }
        Ok(entered)
    }

    /// What has entered now: a container that starts, and a second driver beside this
    /// one, ask again.
    fn enter(&self, plan: &Plan, sandbox: &Sandbox) -> Result<Option<Plan>, PrepareError> {
        let uid = &plan.claim.uid;
        let Effects { paths, namespaces, faults, .. } = &self.effects;
        let host = NetNs::current()?;
        let network = self.network_of(sandbox);
        let pod = Arc::new(NetNs::open(&network)?);
        if !is_separate(plan, &host, &pod)? {
            self.make_ready(uid, Path::new(HOST_NETWORK))?;
            return Ok(None);
        }
        // As the runtime names it: the name ends with the sandbox.
        let network = sandbox.network.as_deref().unwrap_or(&network);
        let (path, sandbox) = (paths.attached(uid), Some(sandbox.id.clone()));
        let mut record = AttachRecord::begin(&path, pod.id()?, sandbox);
        let is_recorded = AttachRecord::load(&path).as_ref() == Some(&record);
        self.take_back(plan, record.namespace)?;
        namespaces.hold(uid, Arc::clone(&pod));
        if is_recorded && fs::read_link(paths.ready(uid)).is_ok_and(|name| name == network) {
            return Ok(None);
        }
        faults.reached("sandbox:record:before");
        record.store(&path)?;
        faults.reached("sandbox:record:after");
        let given = attach_recorded(plan, &mut record, &path, [&host, &pod])?;
        record.attached(given, &path)?;
        faults.reached("sandbox:links:after");
        self.make_ready(uid, network)?;
        faults.reached("sandbox:ready:after");
        Ok(Some(plan.clone()))
    }

    fn leave(&self, plan: &Plan) -> Result<(), PrepareError> {
        let uid = &plan.claim.uid;
        let faults = &self.effects.faults;
        faults.reached("sandbox:leave:before");
        durable::remove(&self.effects.paths.ready(uid))?;
        self.effects.detach(plan)?;
        faults.reached("sandbox:leave:links");
        self.forget(uid)?;
        faults.reached("sandbox:leave:after");
        Ok(())
    }

    /// The sandbox that has a claim's interfaces.
    fn sandbox_of(&self, uid: &str) -> Option<String> {
        AttachRecord::load(&self.effects.paths.attached(uid))?.sandbox
    }

    fn forget(&self, uid: &str) -> Result<(), FileError> {
        durable::remove(&self.effects.paths.attached(uid))?;
        self.effects.namespaces.release(uid);
        Ok(())
    }

    /// Where this process finds a sandbox's network: its directory of names may be
    /// another than the runtime's.
    fn network_of(&self, sandbox: &Sandbox) -> PathBuf {
        let Some(path) = &sandbox.network else { return HOST_NETWORK.into() };
        let here = path.file_name().map(|name| self.effects.paths.netns.join(name));
        here.filter(|here| here.exists()).unwrap_or_else(|| path.clone())
    }

    /// Lets containers of the claim start while this namespace has its name.
    fn make_ready(&self, uid: &str, network: &Path) -> Result<(), FileError> {
        let ready = self.effects.paths.ready(uid);
        if let Some(folder) = ready.parent() {
            durable::create_dir(folder)?;
        }
        durable::remove(&ready)?;
        symlink(network, &ready).map_err(|source| FileError::new("make", &ready, source))
    }
}

#[cfg(test)]
mod tests;
