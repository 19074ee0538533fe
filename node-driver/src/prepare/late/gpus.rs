//! Finds the GPUs behind the IDs of device plugins.
//!
//! | Device plugin | ID | Source |
//! |---|---|---|
//! | NVIDIA | UUID, with time-slicing and MPS `UUID::N`; for MIG the UUID of the part | `NVIDIA/k8s-device-plugin`, `internal/rm/devices.go` |
//! | AMD | PCI address, with time-slicing `ADDRESS-slice-N` | `ROCm/k8s-device-plugin`, `internal/pkg/plugin/plugin.go` and `timeslice.go` |
//! | Intel | DRM device and number, `card1-0` | `intel/intel-device-plugins-for-kubernetes`, `cmd/gpu_plugin` |

use crate::facts::pod_resources::PluginDevice;
use crate::model::plan::PluginGpu;
use crate::prepare::late::LateError;
use cluster_model::gpu_drivers;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{PciAddress, Snapshot, Topology};

/// Between the ID of a GPU and the number of its share in time.
const NVIDIA_SHARE: &str = "::";
const AMD_SHARE: &str = "-slice-";
/// How the UUID of a part of a GPU begins.
const NVIDIA_PART: &str = "MIG-";

/// The GPUs of a machine by the names that device plugins use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownGpus {
    by_name: BTreeMap<String, PciAddress>,
    uuids: BTreeMap<PciAddress, String>,
}

impl KnownGpus {
    /// The GPUs of this machine.
    pub fn new(topology: &Topology, machine: &Snapshot) -> Self {
        let mut known = Self::default();
        for gpu in topology.gpus() {
            known.by_name.insert(gpu.address.to_string(), gpu.address);
            if let Some(uuid) = &gpu.uuid {
                known.by_name.insert(uuid.clone(), gpu.address);
                known.uuids.insert(gpu.address, uuid.clone());
            }
        }
        let cards =
            machine.gpus.iter().filter_map(|gpu| Some((gpu.drm_card.clone()?, gpu.address)));
        known.by_name.extend(cards);
        known
    }

    /// The GPU with this ID.
    fn find(&self, id: &str) -> Option<PciAddress> {
        let id = id.split_once(NVIDIA_SHARE).map_or(id, |(gpu, _)| gpu);
        let id = id.rsplit_once(AMD_SHARE).map_or(id, |(gpu, _)| gpu);
        let card = id.rsplit_once('-').map(|(card, _)| card).filter(|_| id.starts_with("card"));
        self.by_name.get(card.unwrap_or(id)).copied()
    }
}

/// The GPUs among a pod's devices, each once, by address.
///
/// # Errors
/// A device of a resource of GPUs is none that the machine shows.
pub fn gpus(devices: &[PluginDevice], known: &KnownGpus) -> Result<Vec<PluginGpu>, LateError> {
    let mut gpus = BTreeMap::new();
    for device in devices.iter().filter(|device| is_of_gpus(&device.resource)) {
        let PluginDevice { resource, id } = device.clone();
        let Some(pci_bus_id) = known.find(&id) else {
            let is_part = id.starts_with(NVIDIA_PART);
            return Err(if is_part {
                LateError::PartOfGpu { resource, id }
            } else {
                LateError::UnknownGpu { resource, id }
            });
        };
        let uuid = known.uuids.get(&pci_bus_id).cloned();
        gpus.entry(pci_bus_id).or_insert(PluginGpu { resource, id, pci_bus_id, uuid });
    }
    Ok(gpus.into_values().collect())
}

/// The GPUs among devices, as far as they are known.
pub(super) fn known(devices: &[PluginDevice], known: &KnownGpus) -> BTreeSet<PciAddress> {
    let of_gpus = devices.iter().filter(|device| is_of_gpus(&device.resource));
    of_gpus.filter_map(|device| known.find(&device.id)).collect()
}

/// Returns true for a resource that device plugins of GPUs offer, whole ones or parts.
fn is_of_gpus(resource: &str) -> bool {
    // Intel's monitors see all GPUs of the node and hold none.
    !resource.ends_with("_monitoring")
        && gpu_drivers::all().iter().any(|driver| {
            driver.extended_resources.contains(&resource)
                || driver.partial_resources.iter().any(|prefix| resource.starts_with(prefix))
        })
}
