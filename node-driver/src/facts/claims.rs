//! Lists the claims of the cluster in pages.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

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
