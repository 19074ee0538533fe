//! Lists the claims of the cluster in pages, and deserializes only the needed fields.

use cluster_model::names::DRIVER;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Claims per page; a claim has about 3 KB.
const PAGE: u32 = 250;

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<C> {
    metadata: PageMetadata,
    items: Vec<C>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    r#continue: Option<String>,
    resource_version: String,
}

/// Passes each claim to `take` and returns the resource version of the list.
pub(crate) async fn each<C: DeserializeOwned>(
    client: &Client,
    mut take: impl FnMut(C),
) -> kube::Result<String> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = request().list(&params).map_err(Error::BuildRequest)?;
        let Page { metadata, items } = client.request::<Page<C>>(request).await?;
        items.into_iter().for_each(&mut take);
        match metadata.r#continue.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(metadata.resource_version),
        }
    }
}

/// A request builder for claims in all namespaces.
pub(crate) fn request() -> Request {
    Request::new(ResourceClaim::url_path(&(), None))
}

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
