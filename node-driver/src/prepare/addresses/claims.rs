//! The addresses of claims on all nodes: listed in pages, then followed by a watch. Nothing
//! else of a claim is kept.

use crate::facts::claims;
use cluster_model::network_config::IpPrefix;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{WatchEvent, WatchParams};
use kube::{Client, Error};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// The fields of a claim that are read.
#[derive(Clone, Debug, Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Metadata {
    uid: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    devices: Option<Vec<ClaimedDevice>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimedDevice {
    driver: String,
    #[serde(default)]
    network_data: Option<NetworkData>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkData {
    ips: Option<Vec<String>>,
}

/// The addresses of all claims, by the claim's UID, as they were at one version.
pub(super) struct Claims {
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Claim>>>>,
}

impl Claims {
    /// Lists all claims.
    pub(super) async fn list(client: &Client, driver: &str) -> kube::Result<Self> {
        let mut all = Self { addresses: BTreeMap::new(), version: String::new(), events: None };
        all.version = claims::each(client, |claim| all.put(claim, driver)).await?;
        Ok(all)
    }

    /// The addresses of one claim, and those of all others.
    pub(super) fn split(&self, uid: &str) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let own = self.addresses.get(uid).cloned().unwrap_or_default();
        let others = self.addresses.iter().filter(|(other, _)| *other != uid);
        (own, others.flat_map(|(_, addresses)| addresses).copied().collect())
    }

    /// Applies all changes up to this version.
    pub(super) async fn follow(
        &mut self,
        client: &Client,
        driver: &str,
        version: &str,
    ) -> kube::Result<()> {
        while !is_at_least(&self.version, version) {
            match self.next(client).await? {
                WatchEvent::Added(claim) | WatchEvent::Modified(claim) => {
                    self.version.clone_from(&claim.metadata.resource_version);
                    self.put(claim, driver);
                }
                WatchEvent::Deleted(claim) => {
                    self.version = claim.metadata.resource_version;
                    self.addresses.remove(&claim.metadata.uid);
                }
                WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(Error::Api(status)),
            }
        }
        Ok(())
    }

    /// The next event. Starts a new watch if the current one has ended.
    async fn next(&mut self, client: &Client) -> kube::Result<WatchEvent<Claim>> {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                none => {
                    let params = WatchParams::default();
                    let request = claims::request().watch(&params, &self.version);
                    let request = request.map_err(Error::BuildRequest)?;
                    none.insert(client.request_events::<Claim>(request).await?.boxed())
                }
            };
            match events.next().await {
                Some(event) => return event,
                None => self.events = None,
            }
        }
    }

    fn put(&mut self, claim: Claim, driver: &str) {
        let devices = claim.status.and_then(|status| status.devices).into_iter().flatten();
        let ours = devices.filter(|device| device.driver == driver);
        let ips = ours.filter_map(|device| device.network_data?.ips).flatten();
        let addresses: BTreeSet<_> =
            ips.filter_map(|text| Some(text.parse::<IpPrefix>().ok()?.address)).collect();
        if addresses.is_empty() {
            self.addresses.remove(&claim.metadata.uid);
        } else {
            self.addresses.insert(claim.metadata.uid, addresses);
        }
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Versions of one resource are increasing numbers (KEP-5504).
fn is_at_least(version: &str, wanted: &str) -> bool {
    match (version.parse::<u64>(), wanted.parse::<u64>()) {
        (Ok(version), Ok(wanted)) => version >= wanted,
        _ => version == wanted,
    }
}
