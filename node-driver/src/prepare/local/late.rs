//! Chooses the NICs of claims that name none.

use crate::facts::pod_resources::PodDevices;
use crate::model::checkpoint::Checkpoint;
use crate::model::plan::{Plan, PluginGpu};
use crate::prepare::claim::AllocatedClaim;
use crate::prepare::error::PrepareError;
use crate::prepare::late::{self, Bound, KnownGpus, LateFacts, has_places};
use crate::prepare::local::LocalPreparer;
use crate::prepare::published::SliceDevices;
use topology_graph::{Snapshot, Topology};

/// A claim that names NICs, and what is known about them.
pub(super) struct BoundClaim {
    pub(super) claim: AllocatedClaim,
    /// The node's slices, and the chosen NICs.
    pub(super) published: SliceDevices,
    /// The pod's GPUs of device plugins, if NICs were chosen for them.
    pub(super) gpus: Vec<PluginGpu>,
    /// The graph that they were chosen in.
    pub(super) topology: Option<Topology>,
}

impl LocalPreparer {
    /// Chooses a NIC for each place of the claim. A claim without places is returned as it is.
    pub(super) fn bind(
        &self,
        claim: &AllocatedClaim,
        published: &SliceDevices,
        machine: &Snapshot,
        (checkpoint, devices): (&Checkpoint, Option<&PodDevices>),
    ) -> Result<BoundClaim, PrepareError> {
        if !has_places(claim) {
            let (claim, published) = (claim.clone(), published.clone());
            return Ok(BoundClaim { claim, published, gpus: Vec::new(), topology: None });
        }
        let wrap =
            |source| PrepareError::Late { claim: claim.claim.clone(), source: Box::new(source) };
        let nics = self.late.get().map_err(wrap)?;
        let none = PodDevices::default();
        let topology = self.topology(machine);
        let held: Vec<&Plan> = checkpoint.claims.values().map(|record| &record.plan).collect();
        let facts = LateFacts {
            topology: &topology,
            known: &KnownGpus::new(&topology, machine),
            devices: devices.unwrap_or(&none),
            nics: &nics,
            held: &held,
        };
        let Bound { claim, gpus } = late::bind(claim, &facts).map_err(wrap)?;
        let pool = claim.devices.first().map(|device| device.pool.clone()).unwrap_or_default();
        let of_pool = [self.effects.paths.driver.as_str(), &pool];
        let published = published.clone().with(of_pool, nics.iter().map(|nic| &nic.device));
        for device in claim.devices.iter().filter(|device| device.place.is_some()) {
            let (claim, gpus) = (&claim.claim, gpus.len());
            tracing::info!(%claim, place = ?device.place, nic = device.device, gpus, "NIC chosen");
        }
        Ok(BoundClaim { claim, published, gpus, topology: Some(topology) })
    }
}
