//! Applies the effects of a plan and undoes them in reverse order. Each can be repeated.
//!
//! The CDI spec is written last and removed first: while the runtime can see it, the
//! files that it names exist.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::dhcp::keeper::Keepers;
use crate::kernel::attach::leave::{KERNEL_RETURN, Patience, Returned};
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::node_network::NodeNetwork;
use crate::kernel::attach::record::AttachRecord;
use crate::kernel::attach::virtual_function_settings;
use crate::model::checkpoint::Unrestored;
use crate::model::claim::{ClaimRef, OtherDevice};
use crate::model::plan::{Plan, PlannedDevice, PlannedGpu, PlannedLink, Wiring};
use crate::prepare::cdi;
use crate::prepare::metadata;
use crate::prepare::notices::{Notices, Subject};
use cluster_model::network_config::RdmaConfig;
use node_files::durable::{self, FileError};
use node_files::paths::Paths;
use process::chain::Chain;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long an interface may take to come back from a namespace of the pod's own that just ended. The runtime
/// waits two seconds for the answer of its plugin.
const INNER_NAMESPACE: Duration = Duration::from_secs(1);

/// The kernel returns everything of a namespace that ended.
const BOTH: Patience = Patience { hardware: KERNEL_RETURN, created: KERNEL_RETURN };

/// An effect failed.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// A file could not be written or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// An interface could not be attached or detached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Applies and undoes plans.
#[derive(Debug)]
pub struct Effects {
    /// Where files go.
    pub paths: Paths,
    /// Settings of the CDI specs.
    pub settings: cdi::SpecSettings,
    /// Interfaces of the host and of pods.
    pub network: Box<dyn NodeNetwork>,
    /// The pods' network namespaces.
    pub namespaces: Arc<Namespaces>,
    /// Renews and releases DHCP leases of interfaces in them.
    pub leases: Keepers,
    /// What people must know about it.
    pub notices: Notices,
    /// Where a test kills the process.
    pub faults: Faults,
}

/// Named points at which a test can kill the driver. Empty in a build without the feature
/// `faults`.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    #[cfg(feature = "faults")]
    kill_at: Option<String>,
    /// Until when the driver lives in a test that plays its process.
    #[cfg(test)]
    life: Option<Arc<crate::protocol::Life>>,
}

impl Faults {
    /// Kills the process at the point of this name.
    #[cfg(feature = "faults")]
    pub fn kill_at(point: Option<String>) -> Self {
        Self {
            kill_at: point,
            #[cfg(test)]
            life: None,
        }
    }

    /// Ends a process that a test plays, when its life is over.
    #[cfg(test)]
    pub(crate) fn of(life: &Arc<crate::protocol::Life>) -> Self {
        Self {
            #[cfg(feature = "faults")]
            kill_at: None,
            life: Some(Arc::clone(life)),
        }
    }

    /// Marks that a point is reached.
    pub fn reached(&self, point: &str) {
        #[cfg(feature = "faults")]
        if self.kill_at.as_deref() == Some(point) {
            use rustix::process::{Signal, getpid, kill_process};
            // A kill, not an exit: nothing may be cleaned up on the way out.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        #[cfg(test)]
        if let Some(life) = &self.life {
            life.step(point);
        }
        #[cfg(not(feature = "faults"))]
        let _ = point;
    }
}

/// What a container reads about its devices.
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
    /// RDMA parameters for connections, if the claim's configuration sets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma: Option<&'a RdmaConfig>,
}

impl<'a> NicEntry<'a> {
    fn new(device: &'a PlannedDevice, claim: Option<&'a str>) -> Self {
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
pub fn devices_file(plan: &Plan) -> DevicesFile<'_> {
    let Wiring { gpus, beside, .. } = &plan.wiring;
    // If the pod has several claims, each NIC names its claim.
    let nics = plan.told().into_iter().map(|(claim, nic)| {
        NicEntry::new(nic, (!beside.is_empty()).then_some(claim.name.as_str()))
    });
    let others = plan.others.iter().chain(beside.iter().flat_map(|claim| &claim.others));
    let (nics, others) = (nics.collect(), others.collect());
    DevicesFile { version: 1, claim: &plan.claim, nics, gpus, others }
}

fn devices_text(plan: &Plan) -> Vec<u8> {
    text_of(&devices_file(plan))
}

fn text_of(value: &impl Serialize) -> Vec<u8> {
    // Cannot fail: the value has only texts, numbers and lists.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

impl Effects {
    /// Writes the claim's files, then its CDI spec. The checkpoint must already be on the
    /// disk, because all of it is derived from there.
    pub fn apply(&self, plan: &Plan) -> Result<(), EffectError> {
        let uid = &plan.claim.uid;
        self.faults.reached("prepare:files:before");
        durable::create_dir(&self.paths.claim(uid))?;
        let text = text_of(plan);
        durable::create_dir(&self.paths.plan_copies())?;
        durable::write_unsynced(&self.paths.plan_copy(uid), &text)?;
        self.faults.reached("prepare:files:copied");
        durable::write_unsynced(&self.paths.plan(uid), &text)?;
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

    /// Applies the claim's virtual function settings at their physical functions.
    pub fn set_functions(&self, plan: &Plan) -> Result<(), EffectError> {
        if plan.functions().next().is_none() {
            return Ok(());
        }
        virtual_function_settings::set(&NetNs::current()?, plan.functions(), &|| {
            self.faults.reached("prepare:function:set");
        })?;
        Ok(())
    }

    /// Restores the settings of virtual functions. Returns those whose physical functions are
    /// not on the host. What the kernel refuses is reported and not tried again.
    pub fn restore_functions(
        &self,
        unrestored: &[Unrestored],
    ) -> Result<Vec<Unrestored>, EffectError> {
        if unrestored.is_empty() {
            return Ok(Vec::new());
        }
        let functions = unrestored.iter().map(|it| &it.function);
        let outcomes = virtual_function_settings::restore(&NetNs::current()?, functions, &|| {
            self.faults.reached("unprepare:function:set");
        })?;
        let mut left = Vec::new();
        for (it, outcome) in unrestored.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    let (claim, device) = (&it.claim, &it.device);
                    tracing::info!(%claim, device, "Virtual function restored");
                }
                Err(AttachError::Gone { .. }) => left.push(it.clone()),
                Err(error) => self.tell_unrestored(it, &Chain(&error).to_string()),
            }
        }
        Ok(left)
    }

    /// Reports a virtual function that keeps settings of an earlier claim.
    pub fn tell_unrestored(&self, unrestored: &Unrestored, reason: &str) {
        let Unrestored { claim, device, .. } = unrestored;
        tracing::warn!(%claim, device, reason, "Virtual function not restored");
        let text =
            format!("virtual function `{device}` was not restored after claim `{claim}`: {reason}");
        self.notices.add(Subject::NotRestored, text);
    }

    /// Whether everything that [`Self::apply`] writes exists with its current content. It
    /// may differ: an earlier driver may have had other settings, and after a power
    /// failure the disk has an older state.
    pub fn is_applied(&self, plan: &Plan) -> bool {
        let uid = &plan.claim.uid;
        let mut files = self.files(plan);
        files.extend(
            [self.paths.plan(uid), self.paths.plan_copy(uid)].map(|it| (it, text_of(plan))),
        );
        files.push((self.paths.cdi_spec(uid), self.spec_text(plan)));
        files.iter().all(|(path, text)| fs::read(path).is_ok_and(|there| there == *text))
    }

    fn spec_text(&self, plan: &Plan) -> Vec<u8> {
        text_of(&cdi::spec(plan, &self.paths, &self.settings))
    }

    /// The files that containers of the claim read.
    fn files(&self, plan: &Plan) -> Vec<(PathBuf, Vec<u8>)> {
        let uid = &plan.claim.uid;
        let cdi::Environment { nccl_topo_file, devices_file, device_metadata, .. } =
            self.settings.environment;
        let mut files = Vec::new();
        if devices_file {
            files.push((self.paths.devices(uid), devices_text(plan)));
        }
        if let Some(nccl) = nccl_topo_file.of(plan) {
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
        self.faults.reached("unprepare:links:after");
        let attached = self.paths.attached(uid);
        durable::remove(&attached)?;
        self.faults.reached("unprepare:attached:after");
        // The pod is gone and with it its hooks, but one may have been killed while
        // writing.
        if let Some(folder) = attached.parent() {
            durable::sweep(folder, &durable::temporaries_of(&attached))?;
        }
        self.namespaces.release(uid);
        self.remove_files(uid)?;
        self.faults.reached("unprepare:files:after");
        Ok(())
    }

    /// Removes the files of a claim that was planned in an earlier boot. The boot has
    /// already brought its interfaces back, under whatever names.
    pub fn forget(&self, uid: &str) -> Result<(), EffectError> {
        self.faults.reached("forget:files:before");
        durable::remove(&self.paths.cdi_spec(uid))?;
        durable::remove(&self.paths.ready(uid))?;
        durable::remove(&self.paths.attached(uid))?;
        self.faults.reached("forget:files:between");
        self.remove_files(uid)?;
        self.faults.reached("forget:files:after");
        Ok(())
    }

    /// Removes the claim's files but the CDI spec, the plan's copy last: the others can be made from it.
    pub(super) fn remove_files(&self, uid: &str) -> Result<(), FileError> {
        durable::remove_dir(&self.paths.claim(uid))?;
        self.faults.reached("unprepare:files:between");
        durable::remove(&self.paths.plan_copy(uid))
    }

    /// Moves the interfaces of a claim back to the host, if they were attached. Returns false if one
    /// that the machine may show again later has not come back.
    pub fn detach(&self, plan: &Plan) -> Result<bool, EffectError> {
        let uid = &plan.claim.uid;
        self.notices.forget_parts(uid);
        // Release leases first, while the interface can still reach the server.
        self.leases.release(uid);
        let Some(record) = AttachRecord::load(&self.paths.attached(uid)) else { return Ok(true) };
        let host = NetNs::current()?;
        let devices: Vec<_> = plan.devices.iter().collect();
        self.faults.reached("unprepare:link:before");
        let find = self.namespaces.find(uid, record.namespace);
        let left = find.map(|pod| self.network.leave(&devices, &record.links, [&host, &pod]));
        let left = left.transpose();
        self.faults.reached("unprepare:links:left");
        let is_given_up = left.is_err() && !self.namespaces.is_named(record.namespace);
        let patience = match &left {
            Ok(Some(())) => Patience { hardware: INNER_NAMESPACE, ..Patience::default() },
            // Waited for when the sandbox stopped.
            Ok(None) if record.is_left => Patience::default(),
            Ok(None) => BOTH,
            Err(error) if is_given_up => {
                // The sandbox is stopped. The kernel returns hardware interfaces by itself when
                // nobody holds the namespace any more.
                tracing::warn!(claim = %plan.claim, error = %Chain(error), "Namespace given up");
                self.namespaces.release(uid);
                BOTH
            }
            Err(_) => return Ok(left.map(|_| false)?),
        };
        let settings = (patience, &*self.paths.sysctl);
        let (mut is_gone, mut is_awaited) = (false, false);
        self.network.restore(&devices, &host, settings, &mut |link, returned| {
            let is_this_gone = matches!(returned, Returned::Gone);
            is_gone |= is_this_gone;
            is_awaited |= is_this_gone && link.host.parent.is_some();
            // It was told when the sandbox stopped.
            if !(is_this_gone && record.is_left) {
                self.report(plan, link, returned);
            }
        })?;
        if is_gone {
            left?;
        }
        Ok(!is_awaited)
    }

    fn report(&self, plan: &Plan, link: &PlannedLink, returned: Returned) {
        let (claim, netdev) = (&plan.claim, &link.host.name);
        match returned {
            Returned::Home(lacking) => {
                tracing::info!(%claim, netdev, "Interface is back on the host");
                for setting in lacking {
                    let error = Chain(&setting).to_string();
                    tracing::warn!(%claim, netdev, error, "Failed to restore the interface");
                    let text = format!(
                        "the interface was not fully restored after claim `{claim}`: {error}"
                    );
                    self.notices.add(Subject::NotRestored, text);
                }
            }
            Returned::Removed => tracing::info!(%claim, netdev, "Child interface removed"),
            Returned::Gone => {
                tracing::warn!(%claim, netdev, "Interface is gone");
                // A virtual one ends with the namespace.
                if link.host.parent.is_some() {
                    let text = format!(
                        "interface `{netdev}` has not come back after claim `{claim}`: it was unplugged, \
                         or the pod moved it into another network namespace that still exists; end \
                         what uses that, or load the NIC's kernel driver again"
                    );
                    self.notices.add(Subject::NotReturned, text);
                }
            }
        }
    }
}
