//! A small HTTP client for metadata services: plain HTTP to a link-local address, never
//! through a proxy, with limits on time, size and attempts.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::time::Duration;

/// Metadata documents have a few KiB; a longer body is rejected.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Time limits and retries for a metadata service, after which the driver goes on without
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one request, connection included.
    pub request: Duration,
    /// Requests before giving up.
    pub attempts: u32,
    /// Pause after the first failed request; doubled after each further one.
    pub pause: Duration,
}

impl Default for Patience {
    /// A service on the host answers within milliseconds; 3.7 s in all.
    fn default() -> Self {
        Self { request: Duration::from_secs(1), attempts: 3, pause: Duration::from_millis(200) }
    }
}

/// A request to a metadata service failed.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The address is malformed.
    #[error("`{url}` is not an http address")]
    Url {
        /// The given address.
        url: String,
    },
    /// The request got no answer.
    #[error("no answer from {url}")]
    Unreachable {
        /// The requested URL.
        url: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No answer arrived in time.
    #[error("no answer from {url} within {} ms", limit.as_millis())]
    Late {
        /// The requested URL.
        url: String,
        /// The time limit.
        limit: Duration,
    },
    /// The service refused the request.
    #[error("{url} answered {status}")]
    Refused {
        /// The requested URL.
        url: String,
        /// The status of the answer.
        status: StatusCode,
    },
    /// The token is not a valid header value.
    #[error("{url} answered with a token that is not a valid header value")]
    Token {
        /// The requested URL.
        url: String,
    },
    /// The answer does not have the documented format.
    #[error("{url} answered with an unexpected document")]
    Malformed {
        /// The requested URL.
        url: String,
        /// The parse error.
        source: serde_json::Error,
    },
}

impl MetadataError {
    fn unreachable(url: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable { url: url.to_owned(), source: source.into() }
    }

    /// Whether the same request may succeed a moment later. A service that is busy or
    /// about to be updated answers 410, 429 or 5xx (Azure documentation).
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Token { .. } | Self::Malformed { .. } => false,
            Self::Unreachable { .. } | Self::Late { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error() || matches!(status.as_u16(), 410 | 429)
            }
        }
    }
}

/// A header of a request.
pub(crate) type Header = (HeaderName, HeaderValue);

/// A header whose name is in lower case.
pub(crate) fn header(name: &'static str, value: &'static str) -> Header {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

/// One metadata service.
#[derive(Debug)]
pub(crate) struct MetadataService {
    base: String,
    patience: Patience,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl MetadataService {
    /// The service at a base address such as `http://169.254.169.254`.
    pub(crate) fn at(base: &str, patience: Patience) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(patience.request));
        Self {
            base: base.trim_end_matches('/').to_owned(),
            patience,
            client: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// The full address of a path.
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The body of a successful answer to a GET.
    async fn get(&self, path: &str, headers: &[Header]) -> Result<Bytes, MetadataError> {
        self.request(&Method::GET, path, headers).await
    }

    /// The text of a successful answer to a GET; `None` if the service has nothing at
    /// this path.
    pub(crate) async fn text(
        &self,
        path: &str,
        headers: &[Header],
    ) -> Result<Option<String>, MetadataError> {
        match self.get(path, headers).await {
            Ok(body) => Ok(Some(String::from_utf8_lossy(&body).trim().to_owned())),
            Err(MetadataError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The document of a successful answer to a GET.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[Header],
    ) -> Result<T, MetadataError> {
        let body = self.get(path, headers).await?;
        serde_json::from_slice(&body)
            .map_err(|source| MetadataError::Malformed { url: self.url(path), source })
    }

    /// The body of a successful answer. Retries as often as the service's [`Patience`]
    /// allows.
    async fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &[Header],
    ) -> Result<Bytes, MetadataError> {
        let url = self.url(path);
        let mut pause = self.patience.pause;
        let mut attempt = 1;
        loop {
            match self.attempt(method, &url, headers).await {
                Err(error) if error.is_passing() && attempt < self.patience.attempts => {
                    tracing::debug!(url, attempt, %error, "Metadata service asked again");
                }
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// Gets a session token as AWS and Alibaba Cloud issue it: requested by PUT, valid
    /// for one minute, sent as a header with every further request.
    pub(crate) async fn token(
        &self,
        path: &str,
        lifetime: &'static str,
        name: &'static str,
    ) -> Result<Header, MetadataError> {
        let body = self.request(&Method::PUT, path, &[header(lifetime, "60")]).await?;
        let mut value = HeaderValue::from_bytes(body.trim_ascii())
            .map_err(|_| MetadataError::Token { url: self.url(path) })?;
        value.set_sensitive(true);
        Ok((HeaderName::from_static(name), value))
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &str,
        headers: &[Header],
    ) -> Result<Bytes, MetadataError> {
        let limit = self.patience.request;
        tokio::time::timeout(limit, self.exchange(method, url, headers))
            .await
            .unwrap_or_else(|_| Err(MetadataError::Late { url: url.to_owned(), limit }))
    }

    async fn exchange(
        &self,
        method: &Method,
        url: &str,
        headers: &[Header],
    ) -> Result<Bytes, MetadataError> {
        let uri: Uri = url.parse().map_err(|_| MetadataError::Url { url: url.to_owned() })?;
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        request.headers_mut().extend(headers.iter().cloned());
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| MetadataError::unreachable(url, error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(MetadataError::Refused { url: url.to_owned(), status });
        }
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
        Ok(body.map_err(|error| MetadataError::unreachable(url, error))?.to_bytes())
    }
}
