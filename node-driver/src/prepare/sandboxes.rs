//! Pod sandboxes, as the container runtime reports them by NRI: interfaces of the pod's
//! claims move in when a sandbox runs, and back when it stops.

use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::record::{AttachRecord, attach_recorded};
use crate::kernel::attach::{AttachMode, is_separate};
use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::plan::{Plan, PlannedDevice};
use crate::prepare::cdi;
use crate::prepare::effects::Effects;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use node_files::durable::{self, FileError};
use process::chain::Chain;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The host's network namespace, for pods that use it.
const HOST_NETWORK: &str = "/proc/1/ns/net";

/// One sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's ID for it.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Namespace and name of its pod.
    pub pod: String,
    /// Path of its network namespace; none if it uses the host's.
    pub network: Option<PathBuf>,
    /// Whether its process runs.
    pub is_running: bool,
}

/// The claims whose interfaces are in the sandbox of a container that is about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// UIDs of its claims whose interfaces are in the sandbox.
    pub claims: Vec<String>,
    /// Those of them that several pods can have.
    pub shareable: Vec<String>,
    /// Whether the container has an RDMA device.
    pub has_rdma: bool,
    /// The plans whose interfaces moved just now.
    pub moved: Vec<Plan>,
}

/// An action that follows from a list of sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    /// The claim's sandbox is gone: move its interfaces back to the host.
    Leave(String),
    /// Move the claim's interfaces into the sandbox with this index in the list.
    Enter(String, usize),
}

/// Decides the actions. `gone` are the claims whose recorded namespace has lost its name.
/// They are checked because a runtime that has just started may not list every running
/// sandbox.
fn due(
    checkpoint: &Checkpoint,
    records: &BTreeMap<String, AttachRecord>,
    gone: &BTreeSet<String>,
    sandboxes: &[Sandbox],
) -> Vec<Due> {
    let left = checkpoint.claims.keys().filter(|uid| {
        let sandbox = records.get(*uid).and_then(|record| record.sandbox.as_ref());
        gone.contains(*uid) && sandbox.is_some_and(|id| sandboxes.iter().all(|it| it.id != *id))
    });
    let entering = moving(checkpoint).filter_map(|plan| {
        let mut all = sandboxes.iter();
        let place = all.position(|it| it.is_running && is_for(plan, &it.pod_uid))?;
        Some(Due::Enter(plan.claim.uid.clone(), place))
    });
    left.cloned().map(Due::Leave).chain(entering).collect()
}

/// Prepared plans that attach something by NRI.
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

/// Whether one of its devices is among these CDI devices.
fn is_named(plan: &Plan, driver: &str, cdi_devices: &[String]) -> bool {
    let mut ids = plan.devices.iter().map(|device| cdi::device_id(driver, plan, device));
    ids.any(|id| cdi_devices.contains(&id))
}

impl LocalPreparer {
    /// Moves interfaces of the pod's claims into a starting sandbox, all or none. Returns
    /// the plans whose interfaces moved.
    pub fn run_sandbox(&self, sandbox: &Sandbox) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let plans = moving(&checkpoint).filter(|plan| is_for(plan, &sandbox.pod_uid));
        self.enter_all(plans.cloned().collect(), sandbox)
    }

    /// Makes sure that the interfaces behind these CDI devices are in the container's
    /// sandbox, no matter which pod the claim was prepared for.
    pub fn create_container(
        &self,
        sandbox: &Sandbox,
        cdi_devices: &[String],
    ) -> Result<Inside, PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let driver = &self.effects.paths.driver;
        let plans = checkpoint.claims.values().map(|record| &record.plan);
        let named = plans.filter(|plan| is_named(plan, driver, cdi_devices));
        let (uids, with_rdma): (Vec<String>, Vec<bool>) = named
            .map(|plan| {
                let has_rdma = plan.devices.iter().any(|device| device.rdma.is_some());
                (plan.claim.uid.clone(), has_rdma)
            })
            .unzip();
        for uid in &uids {
            self.check_numbers(&mut checkpoint, uid)?;
        }
        let moving = moving(&checkpoint).filter(|plan| is_named(plan, driver, cdi_devices));
        let plans: Vec<Plan> = moving.cloned().collect();
        let claims = plans.iter().map(|plan| plan.claim.uid.clone()).collect();
        let shareable = plans.iter().filter(|plan| !plan.is_of_one_pod());
        let shareable = shareable.map(|plan| plan.claim.uid.clone()).collect();
        let has_rdma = with_rdma.contains(&true);
        Ok(Inside { claims, shareable, has_rdma, moved: self.enter_all(plans, sandbox)? })
    }

    /// Whether a CDI device is one of this driver's.
    pub fn is_ours(&self, cdi_device: &str) -> bool {
        let kind = cdi::kind(&self.effects.paths.driver);
        cdi_device.split_once('=').is_some_and(|(of, _)| of == kind)
    }

    /// Moves interfaces from a stopping sandbox back to the host. A sandbox that was already
    /// replaced by another one of the same pod has none.
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

    /// Makes interfaces and sandboxes consistent after the runtime or this driver was
    /// down. A claim's failure does not affect the others; it is tried again when its
    /// container starts.
    pub fn synchronize(&self, sandboxes: &[Sandbox]) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let records = self.attach_records(&checkpoint);
        let namespaces = &self.effects.namespaces;
        let gone = records.iter().filter(|(_, record)| !namespaces.is_named(record.namespace));
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
                Err(error) => {
                    tracing::warn!(%claim, error = %Chain(&error), "Failed to synchronize");
                }
            }
        }
        self.count(&checkpoint);
        Ok(entered)
    }

    fn attach_records(&self, checkpoint: &Checkpoint) -> BTreeMap<String, AttachRecord> {
        checkpoint
            .claims
            .keys()
            .filter_map(|uid| {
                Some((uid.clone(), AttachRecord::load(&self.effects.paths.attached(uid))?))
            })
            .collect()
    }

    fn enter_all(&self, plans: Vec<Plan>, sandbox: &Sandbox) -> Result<Vec<Plan>, PrepareError> {
        let mut entered: Vec<Plan> = Vec::new();
        for plan in plans {
            match self.enter(&plan, sandbox) {
                Ok(plan) => entered.extend(plan),
                Err(error) => {
                    // Report the first error; what cannot go back now goes back when the
                    // claim is unprepared.
                    for plan in entered.iter().chain([&plan]) {
                        if self.sandbox_of(&plan.claim.uid).as_deref() == Some(&sandbox.id) {
                            let _ = self.leave(plan);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(entered)
    }

    /// Attaches one plan; `None` if it is already attached, because a starting container
    /// and a second driver instance ask again.
    fn enter(&self, plan: &Plan, sandbox: &Sandbox) -> Result<Option<Plan>, PrepareError> {
        let uid = &plan.claim.uid;
        let Effects { paths, namespaces, faults, network, .. } = &self.effects;
        let host = NetNs::current()?;
        let opened = self.network_of(sandbox);
        let pod = Arc::new(NetNs::open(&opened)?);
        if !is_separate(plan, &host, &pod)? {
            self.make_ready(uid, Path::new(HOST_NETWORK))?;
            return Ok(None);
        }
        // By the runtime's path, whose name ends with the sandbox.
        let name = sandbox.network.as_deref().unwrap_or(&opened);
        let (path, sandbox) = (paths.attached(uid), Some(sandbox.id.clone()));
        let mut record = AttachRecord::begin(&path, pod.id()?, sandbox);
        let is_recorded = AttachRecord::load(&path).as_ref() == Some(&record);
        self.take_back(plan, record.namespace)?;
        namespaces.hold(uid, Arc::clone(&pod));
        if is_recorded
            && fs::read_link(paths.ready(uid)).is_ok_and(|ready| ready == name)
            && network.are_inside(plan, &record.links, &pod)?
        {
            return Ok(None);
        }
        faults.reached("sandbox:record:before");
        record.store(&path)?;
        faults.reached("sandbox:record:after");
        let files = [&*path, &*paths.sysctl];
        let given = attach_recorded(&**network, plan, &mut record, files, [&host, &pod])?;
        record.attached(given, &path)?;
        faults.reached("sandbox:links:after");
        self.make_ready(uid, name)?;
        faults.reached("sandbox:ready:after");
        Ok(Some(plan.clone()))
    }

    fn leave(&self, plan: &Plan) -> Result<(), PrepareError> {
        let uid = &plan.claim.uid;
        let faults = &self.effects.faults;
        faults.reached("sandbox:leave:before");
        durable::remove(&self.effects.paths.ready(uid))?;
        let is_back = self.effects.detach(plan)?;
        faults.reached("sandbox:leave:links");
        if is_back {
            self.forget(uid)?;
        } else {
            AttachRecord::left(&self.effects.paths.attached(uid))?;
            self.effects.namespaces.release(uid);
        }
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

    /// Path of a sandbox's network namespace for this process, which may have the directory of
    /// named namespaces at another path than the runtime.
    fn network_of(&self, sandbox: &Sandbox) -> PathBuf {
        let Some(path) = &sandbox.network else { return HOST_NETWORK.into() };
        let here = path.file_name().map(|name| self.effects.paths.netns.join(name));
        here.filter(|here| here.exists()).unwrap_or_else(|| path.clone())
    }

    /// Lets the claim's containers start while this namespace keeps its name.
    fn make_ready(&self, uid: &str, network: &Path) -> Result<(), FileError> {
        let ready = self.effects.paths.ready(uid);
        if let Some(folder) = ready.parent() {
            durable::create_dir(folder)?;
        }
        durable::remove(&ready)?;
        symlink(network, &ready).map_err(|source| FileError::new("create", &ready, source))
    }
}

#[cfg(test)]
mod tests;
