//! Reserves addresses from a range that many claims share, across all nodes. The statuses
//! of the claims are the only record; there is no separate pool object.
//!
//! Each claim chooses by its UID, so that concurrent claims seldom choose the same
//! address. It writes its choice into its status and reads the other claims again. It has
//! the address only if no other claim has been seen with it until then; otherwise it
//! chooses again. If two claims write the same address, the later one sees the earlier
//! one. Deleting a claim frees its address.
//!
//! Each preparation lists all claims once and then watches from that version. The server
//! sends writes in their order, so a client that has seen its own write has seen all
//! earlier ones.

mod choice;
mod claims;

use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::error::PrepareError;
use choice::choose_all;
use claims::Claims;
use cluster_model::network_config::NetworkConfig;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;

/// Attempts before giving up. Each one after the first follows a conflict with another
/// claim that chose at the same moment.
const CHOICES: u32 = 8;

/// Longest time for the whole reservation; below the kubelet's limit of 45 s.
const PATIENCE: Duration = Duration::from_secs(25);

/// Assigns addresses to the claim's devices whose configuration names a range.
pub(crate) async fn reserve(
    client: &Client,
    driver: &str,
    claim: &mut AllocatedClaim,
) -> Result<(), PrepareError> {
    let wanted: Vec<(usize, NetworkConfig)> = wanted(claim);
    if wanted.is_empty() {
        return Ok(());
    }
    let asked = claim.claim.clone();
    tokio::time::timeout(PATIENCE, choose(client, driver, claim, &wanted))
        .await
        .map_err(|_| PrepareError::AddressesLate { claim: asked })?
}

async fn choose(
    client: &Client,
    driver: &str,
    claim: &mut AllocatedClaim,
    wanted: &[(usize, NetworkConfig)],
) -> Result<(), PrepareError> {
    let asked = claim.claim.clone();
    let wrap = |source: kube::Error| PrepareError::Addresses {
        claim: asked.clone(),
        source: Box::new(source),
    };
    let mut claims = Claims::list(client, driver).await.map_err(wrap)?;
    for number in 0..CHOICES {
        let (own, others) = claims.split(&asked.uid);
        let Some(chosen) = choose_all(wanted, &format!("{}/{number}", asked.uid), &own, &others)
        else {
            // Otherwise two claims that chose the last free address would block each
            // other.
            if !own.is_empty() {
                claim.devices.iter_mut().for_each(|device| device.address = None);
                write(client, driver, claim).await.map_err(wrap)?;
            }
            return Err(PrepareError::RangeFull { claim: asked });
        };
        let is_written = chosen.iter().all(|(_, prefix)| own.contains(&prefix.address));
        for (index, prefix) in chosen {
            claim.devices[index].address = Some(prefix);
        }
        if is_written {
            return Ok(());
        }
        let version = write(client, driver, claim).await.map_err(wrap)?;
        claims.follow(client, driver, &version).await.map_err(wrap)?;
    }
    Err(PrepareError::RangeContended { claim: asked })
}

/// Index and configuration of the devices with a range. The plan rejects malformed
/// configurations.
fn wanted(claim: &AllocatedClaim) -> Vec<(usize, NetworkConfig)> {
    let devices = claim.devices.iter().enumerate().filter_map(|(index, device)| {
        let config = NetworkConfig::parse(device.parameters.as_ref()?).ok()?;
        config.interface.address_range.is_some().then_some((index, config))
    });
    devices.collect()
}

/// Writes the choice into the claim's status before it is used. Returns the claim's new
/// resource version.
async fn write(client: &Client, driver: &str, claim: &AllocatedClaim) -> kube::Result<String> {
    let devices: Vec<_> =
        claim.devices.iter().map(|device| device_status(driver, device)).collect();
    let status = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": claim.claim.namespace, "name": claim.claim.name, "uid": claim.claim.uid,
        },
        "status": {"devices": devices},
    });
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.claim.namespace);
    let params = PatchParams::apply(driver).force();
    let written = claims.patch_status(&claim.claim.name, &params, &Patch::Apply(&status)).await?;
    Ok(written.resource_version().unwrap_or_default())
}

fn device_status(driver: &str, device: &AllocatedDevice) -> Value {
    let mut status = json!({"driver": driver, "pool": device.pool, "device": device.device});
    if let Some(share) = &device.share_id {
        status["shareID"] = json!(share);
    }
    if let Some(address) = &device.address {
        status["networkData"] = json!({"ips": [address.to_string()]});
    }
    status
}

#[cfg(test)]
mod tests;
