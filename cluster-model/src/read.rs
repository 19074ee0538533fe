//! One-shot reader of a live cluster for the command line.

use crate::watch::PAGE;
use http::Request;
use kube::{Client, Error};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

/// Reads every object of a list in the API server, such as `/api/v1/nodes`, page by page. Neither
/// side then holds the text of all objects at once.
pub async fn each(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&RawValue),
) -> kube::Result<()> {
    let mut token = String::new();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let next = if token.is_empty() { String::new() } else { format!("&continue={token}") };
        let page: Page =
            client.request(get(&format!("{path}{separator}limit={PAGE}{next}"))?).await?;
        page.items.iter().for_each(|item| take(item));
        match page.metadata.token.filter(|token| !token.is_empty()) {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// Reads one object; `None` if it does not exist.
pub async fn one(client: &Client, path: &str) -> kube::Result<Option<Box<RawValue>>> {
    match client.request(get(path)?).await {
        Ok(object) => Ok(Some(object)),
        // A kind that is not installed is answered without a reason.
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the API server's response as text.
pub async fn text(client: &Client, path: &str) -> kube::Result<String> {
    client.request_text(get(path)?).await
}

fn get(path: &str) -> kube::Result<Request<Vec<u8>>> {
    Request::get(path).body(Vec::new()).map_err(Error::HttpError)
}
