//! Remembers which devices had an interface in this boot. A device without one may be in use by
//! a pod or a network plugin, or it never had any, as with EFA and eRDMA; what the host shows of
//! both is the same.

use crate::model::checkpoint::Checkpoint;
use crate::prepare::inventory::Inventory;
use node_files::durable::{self, FileError};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Adds the devices that have an interface now, on the host or by a claim, to those in the file,
/// and returns all. A boot starts with an empty directory.
pub(super) fn remember(
    path: &Path,
    inventory: &Inventory,
    checkpoint: &Checkpoint,
) -> Result<BTreeSet<String>, FileError> {
    let known: BTreeSet<String> =
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let with_interface = inventory.devices().filter(|nic| nic.link_name().is_some());
    let now = with_interface.map(|nic| nic.name.clone());
    let plans = checkpoint.claims.values().map(|record| &record.plan);
    let held = plans.flat_map(|plan| &plan.devices).filter(|device| device.link.is_some());
    let held = held.map(|device| device.device.clone());
    let all: BTreeSet<_> = known.iter().cloned().chain(now).chain(held).collect();
    if all != known {
        if let Some(folder) = path.parent() {
            durable::create_dir(folder)?;
        }
        durable::write_json(path, &all)?;
    }
    Ok(all)
}
