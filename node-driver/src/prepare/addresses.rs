//! Addresses from a range that many claims share: no pool of one's own, but what the
//! claims' status says, over all nodes.
//!
//! Each claim chooses by its UID, so that two at once seldom choose alike, writes its
//! choice into its status, and looks again: it has the address only if no other claim
//! was seen with it until then, else it chooses anew. Of two that wrote the same the
//! later sees the earlier. An address is free again when its claim is deleted.
//!
//! All claims are listed once a prepare. What follows is a watch from there, which the
//! server ends with nothing but the writes since; it gives them in their order, so
//! whoever has seen its own write has seen all earlier ones.

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
use serde_json::json;
use std::time::Duration;

/// Choices before giving up: each but the first follows one that another claim, chosen at
/// the same moment, has made void.
const CHOICES: u32 = 8;

/// Longest that all of it may take, below the kubelet's 45 s.
const PATIENCE: Duration = Duration::from_secs(25);

/// Gives the claim's devices addresses where their configuration names a range.
pub(super) async fn reserve(
    client: &Client,
    driver: &str,
    claim: &mut AllocatedClaim,
) -> Result<(), PrepareError> {
    let wanted: Vec<(usize, NetworkConfig)> = wanted(claim);
    if wanted.is_empty() {
        return Ok(());
    }
    let asked = claim.claim.clone();
    let late = |_| PrepareError::AddressesLate { claim: asked };
    tokio::time::timeout(PATIENCE, choose(client, driver, claim, &wanted)).await.map_err(late)?
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
            // Two that chose the last address would else keep it from each other.
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

/// The devices with a range, by their place. What is malformed is refused by the plan.
fn wanted(claim: &AllocatedClaim) -> Vec<(usize, NetworkConfig)> {
    let config = |device: &AllocatedDevice| {
        let config = NetworkConfig::parse(device.parameters.as_ref()?).ok()?;
        config.interface.address_range.is_some().then_some(config)
    };
    let devices = claim.devices.iter().enumerate();
    devices.filter_map(|(index, device)| Some((index, config(device)?))).collect()
}

/// The choice, before anything is done with it; returns its version.
async fn write(client: &Client, driver: &str, claim: &AllocatedClaim) -> kube::Result<String> {
    let device = |device: &AllocatedDevice| {
        let mut entry = json!({"driver": driver, "pool": device.pool, "device": device.device});
        if let Some(share) = &device.share_id {
            entry["shareID"] = json!(share);
        }
        if let Some(address) = &device.address {
            entry["networkData"] = json!({"ips": [address.to_string()]});
        }
        entry
    };
    let status = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": claim.claim.namespace, "name": claim.claim.name, "uid": claim.claim.uid,
        },
        "status": {"devices": claim.devices.iter().map(device).collect::<Vec<_>>()},
    });
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.claim.namespace);
    let params = PatchParams::apply(driver).force();
    let written = claims.patch_status(&claim.claim.name, &params, &Patch::Apply(&status)).await?;
    Ok(written.resource_version().unwrap_or_default())
}

#[cfg(test)]
mod tests;
