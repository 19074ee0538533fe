//! The devices of a pool that are allocated to claims. Deserializes only the needed fields.

use crate::facts::claims::each;
use cluster_model::names::DRIVER;
use kube::Client;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The fields of a claim that show which devices it has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Metadata,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Option<Vec<Allocated>>,
}

#[derive(Debug, Deserialize)]
struct Allocated {
    driver: String,
    pool: String,
    device: String,
}

/// The allocated devices of a pool, each with its claim, `namespace/name`.
pub(crate) async fn allocated(
    client: &Client,
    pool: &str,
) -> kube::Result<BTreeMap<String, String>> {
    let mut allocated = BTreeMap::new();
    each(client, |claim: Claim| {
        let results = claim.status.and_then(|it| it.allocation?.devices.results);
        let ours = results.into_iter().flatten();
        let ours = ours.filter(|it| it.driver == DRIVER && it.pool == pool);
        let Metadata { name, namespace } = claim.metadata;
        allocated.extend(ours.map(|it| (it.device, format!("{namespace}/{name}"))));
    })
    .await?;
    Ok(allocated)
}
