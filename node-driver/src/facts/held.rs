//! Which devices pods have, according to the plugin's checkpoint. Only reads it, and
//! never waits for it.

use crate::model::checkpoint::Checkpoint;
use publication::held::Held;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;
use std::{fs, io};

/// A port of an RDMA device that a pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPort {
    /// Namespace of the claim and the pod.
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) claim: String,
    /// The device in the slice.
    pub(crate) device: String,
    /// Kernel name of the RDMA device.
    pub(crate) rdma_device: String,
    pub(crate) port: u32,
}

/// The NICs of prepared claims, by the way in which the claims got them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenNics {
    /// Devices that claims name.
    pub(crate) named: BTreeSet<String>,
    /// Devices that were chosen for places, by the name of the place.
    pub(crate) places: BTreeMap<String, String>,
}

/// The plugin's checkpoint; none if the driver prepares no claims.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    checkpoint: Option<PathBuf>,
}

impl Claims {
    /// Uses this checkpoint.
    pub(crate) fn new(checkpoint: Option<PathBuf>) -> Self {
        Self { checkpoint }
    }

    /// The devices that pods have now.
    pub(crate) fn held(&self) -> Held {
        let checkpoint = self.checkpoint.as_deref().and_then(Checkpoint::peek).unwrap_or_default();
        let plans = checkpoint.claims.into_values().map(|record| record.plan);
        let mut held = Held::new();
        for device in plans.flat_map(|plan| plan.devices).filter(|device| !device.admin_access) {
            let holding = held.entry(device.device.clone()).or_default();
            holding.interface |= device.link.is_some();
            holding.rdma |= device.moving_rdma().is_some();
        }
        held
    }

    /// The NICs that pods have now; `None` if the checkpoint cannot be read, which must not look like
    /// one without claims.
    pub(crate) fn given(&self) -> Option<GivenNics> {
        let mut given = GivenNics::default();
        let plans = self.read().ok()?.claims.into_values().map(|record| record.plan);
        for device in plans.flat_map(|plan| plan.devices).filter(|device| !device.admin_access) {
            match device.place {
                Some(place) => drop(given.places.insert(place, device.device)),
                None => drop(given.named.insert(device.device)),
            }
        }
        Some(given)
    }

    /// The ports of RDMA devices that pods have, one entry for each pod of a claim.
    pub(crate) fn ports(&self) -> Vec<HeldPort> {
        let checkpoint = self.checkpoint.as_deref().and_then(Checkpoint::peek).unwrap_or_default();
        let mut held = Vec::new();
        for plan in checkpoint.claims.into_values().map(|record| record.plan) {
            let devices = plan.devices.iter().filter(|device| !device.admin_access);
            for (device, rdma) in devices.filter_map(|it| Some((&it.device, it.rdma.as_ref()?))) {
                for (pod, port) in
                    plan.pods.iter().flat_map(|pod| rdma.ports.iter().map(move |port| (pod, port)))
                {
                    held.push(HeldPort {
                        namespace: plan.claim.namespace.clone(),
                        pod: pod.name.clone(),
                        claim: plan.claim.name.clone(),
                        device: device.clone(),
                        rdma_device: rdma.name.clone(),
                        port: *port,
                    });
                }
            }
        }
        held
    }

    /// Reads the checkpoint.
    ///
    /// # Errors
    /// It cannot be read, which must not look like one without claims.
    pub(crate) fn read(&self) -> io::Result<Checkpoint> {
        let Some(path) = &self.checkpoint else { return Ok(Checkpoint::default()) };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Checkpoint::default());
            }
            other => other?,
        };
        Checkpoint::from_text(&text)
            .ok_or_else(|| io::Error::other("the checkpoint cannot be read"))
    }

    /// The checkpoint's modification time, which changes with every write.
    pub(crate) fn stamp(&self) -> Option<SystemTime> {
        fs::metadata(self.checkpoint.as_ref()?).ok()?.modified().ok()
    }
}
