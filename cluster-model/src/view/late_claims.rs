//! Claims for places of nodes that bind NICs late: which NICs and GPUs stand behind them.

use super::ObjectKey;
use super::grouped::Grouped;
use crate::names;
use crate::network_config::LateBindingConfig;
use crate::published_device::is_place;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim, ResourceClaimSpec};
use serde::Deserialize;
use std::collections::BTreeSet;
use topology_graph::PciAddress;

/// What a claim for places holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateClaim {
    /// The number of its places.
    pub places: usize,
    /// What its configuration says.
    pub wanted: LateBindingConfig,
    /// The NICs that the driver has chosen for it. Empty until its pod starts.
    pub nics: BTreeSet<PciAddress>,
    /// The GPUs that its pod has from a device plugin. Empty until its pod starts.
    pub gpus: BTreeSet<PciAddress>,
}

/// What the driver writes about a place into the status of a claim.
#[derive(Deserialize)]
struct Chosen {
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    gpus: Vec<String>,
}

impl Grouped<LateClaim> {
    /// Notes a claim for places of a pool.
    pub(super) fn apply(&mut self, claim: &ResourceClaim) {
        let key = ObjectKey::new(&claim.metadata);
        self.remove(&key);
        if let Some((pool, late)) = LateClaim::new(claim) {
            self.insert(key, pool, late);
        }
    }
}

impl LateClaim {
    /// The pool of a claim's places, and what it holds; `None` if it has no places.
    fn new(claim: &ResourceClaim) -> Option<(String, Self)> {
        let allocation = claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?;
        let mut places = allocation
            .results
            .iter()
            .flatten()
            .filter(|result| result.driver == names::DRIVER && is_place(&result.device));
        let pool = places.next()?.pool.clone();
        let mut late = Self {
            places: 1 + places.count(),
            wanted: claim.spec.as_ref().map(late_binding).unwrap_or_default(),
            ..Self::default()
        };
        for chosen in chosen(claim)
            .filter_map(|(_, data)| serde_json::from_value::<Chosen>(data.clone()).ok())
        {
            late.nics.extend(chosen.pci_bus_id.parse::<PciAddress>());
            late.gpus.extend(chosen.gpus.iter().filter_map(|gpu| gpu.parse::<PciAddress>().ok()));
        }
        Some((pool, late))
    }

    /// Returns true if the driver has chosen its NICs.
    pub fn is_bound(&self) -> bool {
        !self.nics.is_empty()
    }
}

/// What the driver has written about the places of a claim.
pub(super) fn chosen(
    claim: &ResourceClaim,
) -> impl Iterator<Item = (&AllocatedDeviceStatus, &serde_json::Value)> {
    let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    devices.filter_map(|device| {
        let is_place = device.driver == names::DRIVER && is_place(&device.device);
        Some((device, &device.data.as_ref().filter(|_| is_place)?.0))
    })
}

/// What a claim's configuration for this project's driver says about NICs that are chosen when the pod
/// starts; the default if it says nothing.
pub fn late_binding(spec: &ResourceClaimSpec) -> LateBindingConfig {
    let configs = spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
    let ours = configs.filter_map(|config| config.opaque.as_ref());
    let mut ours = ours.filter(|opaque| opaque.driver == names::DRIVER);
    let wanted = ours.find_map(|opaque| {
        let wanted = opaque.parameters.0.get("lateBinding")?;
        serde_json::from_value(wanted.clone()).ok()
    });
    wanted.unwrap_or_default()
}
