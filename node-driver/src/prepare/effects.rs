//! The effects of a plan, each repeatable, and their undoing in reverse.
//!
//! A spec is written last and removed first: while the runtime can see it, the
//! files that it names are there.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::dhcp::keeper::Keepers;
use crate::kernel::attach::functions;
use crate::kernel::attach::leave::{KERNEL_RETURN, Returned, leave, restore};
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::record::AttachRecord;
use crate::prepare::claim::{ClaimRef, OtherDevice};
use crate::prepare::durable::{self, FileError};
use crate::prepare::lacking::Lacking;
use crate::prepare::metadata;
use crate::prepare::paths::Paths;
use crate::prepare::plan::{Plan, PlannedDevice, PlannedLink};
use crate::prepare::plan::{PlannedGpu, Wiring};
use crate::runtime::cdi;
use cluster_model::network_config::RdmaConfig;
use process::chain::Chain;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An effect failed.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// An interface.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Carries plans out.
#[derive(Debug)]
pub struct Effects {
    /// Where files go.
    pub paths: Paths,
    /// What the runtime is told.
    pub settings: cdi::Settings,
    /// The pods' namespaces.
    pub namespaces: Arc<Namespaces>,
    /// What DHCP servers have given to interfaces in them.
    pub leases: Keepers,
    /// What the host's interfaces lack after pods had them.
    pub lacking: Lacking,
    /// Where a test ends the process.
    pub faults: Faults,
}

/// Points at which a test may kill the driver, by name. Nothing in a driver
/// that is built without the feature `faults`.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    #[cfg(feature = "faults")]
    kill_at: Option<String>,
}

impl Faults {
    /// Kills the process at the point of this name.
    #[cfg(feature = "faults")]
    pub fn kill_at(point: Option<String>) -> Self {
        Self { kill_at: point }
    }

    /// Says that a point is reached.
    pub fn reached(&self, point: &str) {
        #[cfg(feature = "faults")]
        if self.kill_at.as_deref() == Some(point) {
            use rustix::process::{Signal, getpid, kill_process};
            // Not an exit: nothing may be cleaned up on the way out.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        #[cfg(not(feature = "faults"))]
        let _ = point;
    }
}

/// What a container reads of its devices.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicesFile<'a> {
    version: u32,
    claim: &'a ClaimRef,
    nics: Vec<NicEntry<'a>>,
    gpus: &'a [PlannedGpu],
    others: Vec<&'a OtherDevice>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NicEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<&'a str>,
    request: &'a str,
    device: &'a str,
    #[serde(rename = "pciBusID", skip_serializing_if = "str::is_empty")]
    pci_bus_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    /// How connections are to be made, where the claim's configuration says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma: Option<&'a RdmaConfig>,
}

impl<'a> NicEntry<'a> {
    fn of(device: &'a PlannedDevice, claim: Option<&'a str>) -> Self {
        Self {
            claim,
            request: &device.request,
            device: &device.device,
            pci_bus_id: &device.pci_bus_id,
            rdma_device: device.rdma.as_ref().map(|rdma| rdma.name.as_str()),
            interface: device.link.as_ref().map(|link| link.name.as_str()),
            rdma: device
                .rdma
                .as_ref()
                .map(|rdma| &rdma.parameters)
                .filter(|parameters| **parameters != RdmaConfig::default()),
        }
    }
}

/// Content of `/etc/dranet/devices.json` in a container.
pub fn devices_file<'a>(plan: &'a Plan) -> DevicesFile<'a> {
    let Wiring { gpus, beside, .. } = &plan.wiring;
    // Where there are several, each NIC says whose it is.
    let name = |claim: &'a ClaimRef| (!beside.is_empty()).then_some(claim.name.as_str());
    let nics = plan.told().into_iter().map(|(claim, nic)| NicEntry::of(nic, name(claim)));
    let others = plan.others.iter().chain(beside.iter().flat_map(|claim| &claim.others));
    let (nics, others) = (nics.collect(), others.collect());
    DevicesFile { version: 1, claim: &plan.claim, nics, gpus, others }
}

fn devices_text(plan: &Plan) -> Vec<u8> {
    text_of(&devices_file(plan))
}

fn text_of(value: &impl Serialize) -> Vec<u8> {
    // Texts, numbers and lists: JSON has a form for all of it.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

impl Effects {
    /// Makes the files of the claim, then its CDI spec. All of it follows from the
    /// checkpoint, which the disk has already.
    pub fn apply(&self, plan: &Plan) -> Result<(), EffectError> {
        let uid = &plan.claim.uid;
        self.faults.reached("prepare:files:before");
        durable::create_dir(&self.paths.claim(uid))?;
        durable::write_unsynced(&self.paths.plan(uid), &text_of(plan))?;
        self.faults.reached("prepare:files:between");
        for (path, content) in self.files(plan) {
            durable::write_unsynced(&path, &content)?;
        }
        self.faults.reached("prepare:files:after");
        durable::create_dir(&self.paths.cdi)?;
        durable::write_unsynced(&self.paths.cdi_spec(uid), &self.spec_text(plan))?;
        self.faults.reached("prepare:cdi:after");
        Ok(())
    }

    /// Sets what the claim asks of virtual functions, where their physical functions are.
    pub fn set_functions(&self, plan: &Plan) -> Result<(), EffectError> {
        if plan.functions().next().is_none() {
            return Ok(());
        }
        Ok(functions::set(&NetNs::current()?, plan.functions())?)
    }

    /// They have again what they had. Nobody waits for it: what cannot be is told.
    fn restore_functions(&self, plan: &Plan) -> Result<(), EffectError> {
        if plan.functions().next().is_none() {
            return Ok(());
        }
        for error in functions::restore(&NetNs::current()?, plan.functions())? {
            let (claim, error) = (&plan.claim, Chain(&error).to_string());
            tracing::warn!(%claim, error, "Virtual function is not as it was");
            self.lacking.tell(format!(
                "after claim `{claim}` a virtual function is not as it was: {error}"
            ));
        }
        Ok(())
    }

    /// Whether all that [`Self::apply`] makes is there, as it makes it now: an earlier
    /// driver may have had other settings, and a machine that lost its power has what
    /// its disk had.
    pub fn is_applied(&self, plan: &Plan) -> bool {
        let uid = &plan.claim.uid;
        let mut files = self.files(plan);
        files.push((self.paths.plan(uid), text_of(plan)));
        files.push((self.paths.cdi_spec(uid), self.spec_text(plan)));
        files.iter().all(|(path, text)| fs::read(path).is_ok_and(|there| there == *text))
    }

    fn spec_text(&self, plan: &Plan) -> Vec<u8> {
        text_of(&cdi::spec(plan, &self.paths, &self.settings))
    }

    /// The files that a container of the claim reads.
    fn files(&self, plan: &Plan) -> Vec<(PathBuf, Vec<u8>)> {
        let uid = &plan.claim.uid;
        let cdi::Environment { nccl_topo_file, devices_file, device_metadata, .. } =
            self.settings.environment;
        let mut files = Vec::new();
        if devices_file {
            files.push((self.paths.devices(uid), devices_text(plan)));
        }
        if let Some(nccl) = plan.wiring.nccl.as_ref().filter(|_| nccl_topo_file) {
            files.push((self.paths.nccl(uid), nccl.clone().into_bytes()));
        }
        for request in metadata::requests(plan).into_iter().filter(|_| device_metadata) {
            let text = metadata::stream(plan, &self.paths.driver, request);
            files.push((self.paths.metadata(uid, request), text.into_bytes()));
        }
        files
    }

    /// Removes the spec, brings the interfaces back, removes the files.
    pub fn undo(&self, plan: &Plan) -> Result<(), EffectError> {
        let uid = &plan.claim.uid;
        self.faults.reached("unprepare:cdi:before");
        durable::remove(&self.paths.cdi_spec(uid))?;
        self.faults.reached("unprepare:cdi:after");
        durable::remove(&self.paths.ready(uid))?;
        self.detach(plan)?;
        self.restore_functions(plan)?;
        self.faults.reached("unprepare:links:after");
        let attached = self.paths.attached(uid);
        durable::remove(&attached)?;
        // The pod is gone, and so are its hooks; one may have been killed.
        if let Some(folder) = attached.parent() {
            durable::sweep(folder, &durable::temporaries_of(&attached))?;
        }
        self.namespaces.release(uid);
        durable::remove_dir(&self.paths.claim(uid))?;
        self.faults.reached("unprepare:files:after");
        Ok(())
    }

    /// Removes the files of a claim that was planned in an earlier boot. Its interfaces
    /// came back with the boot, under whatever names.
    pub fn forget(&self, uid: &str) -> Result<(), EffectError> {
        self.faults.reached("forget:files:before");
        durable::remove(&self.paths.cdi_spec(uid))?;
        durable::remove(&self.paths.ready(uid))?;
        durable::remove(&self.paths.attached(uid))?;
        self.faults.reached("forget:files:between");
        durable::remove_dir(&self.paths.claim(uid))?;
        self.faults.reached("forget:files:after");
        Ok(())
    }

    /// Brings the interfaces of a claim back, where the hook has moved any.
    pub fn detach(&self, plan: &Plan) -> Result<(), EffectError> {
        let uid = &plan.claim.uid;
        // While the interface can still tell the server.
        self.leases.release(uid);
        let Some(record) = AttachRecord::load(&self.paths.attached(uid)) else { return Ok(()) };
        let host = NetNs::current()?;
        let devices: Vec<_> = plan.devices.iter().collect();
        self.faults.reached("unprepare:link:before");
        let mut patience = KERNEL_RETURN;
        if let Some(pod) = self.namespaces.find(uid, record.namespace) {
            leave(&devices, &record.links, &host, &pod)?;
            patience = Duration::ZERO;
        }
        self.faults.reached("unprepare:links:left");
        let sysctl = &self.paths.sysctl;
        let report = |link: &_, returned| self.report(plan, link, returned);
        Ok(restore(&devices, &host, patience, sysctl, report)?)
    }

    fn report(&self, plan: &Plan, link: &PlannedLink, returned: Returned) {
        let (claim, netdev) = (&plan.claim, &link.host.name);
        match returned {
            Returned::Home(lacking) => {
                tracing::info!(%claim, netdev, "Interface is back on the host");
                for error in lacking {
                    let error = Chain(&error).to_string();
                    tracing::warn!(%claim, netdev, error, "Interface is not as it was");
                    self.lacking.tell(format!(
                        "after claim `{claim}` the interface is not as it was: {error}"
                    ));
                }
            }
            Returned::Removed => tracing::info!(%claim, netdev, "Interface on the NIC removed"),
            Returned::Gone => tracing::warn!(%claim, netdev, "Interface is gone"),
        }
    }
}
