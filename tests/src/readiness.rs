//! Checks a readiness URL.
//!
//! The certificate of an HTTPS server is not verified, as in the kubelet's probes; tests check
//! separately whether clients can trust the server.

use std::time::Duration;

use anyhow::Context;
use kube::{Client, Config};

/// The timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A URL that responds with success when a program is ready.
pub(crate) struct Probe {
    client: Client,
    path: String,
}

impl Probe {
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let mut base = uri.into_parts();
        base.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let mut config = Config::new(http::Uri::from_parts(base)?);
        config.accept_invalid_certs = true;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        Ok(Self { client: Client::try_from(config)?, path })
    }

    /// Checks once; returns the body of a success, or the problem.
    pub(crate) async fn look(&self) -> Result<String, String> {
        let request = http::Request::get(&self.path).body(Vec::new()).map_err(|e| e.to_string())?;
        let answer = self.client.request_text(request).await;
        answer.map_err(|error| format!("{} answers {:#}", self.path, anyhow::Error::from(error)))
    }
}
