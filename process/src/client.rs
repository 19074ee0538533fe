//! Creates a Kubernetes client from the flags.

use crate::args::KubeArgs;
use crate::kubeconfig::{self, ConfigError, Origin};
use crate::retries::Retries;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use std::fmt;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// A client cannot be created from the flags.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The flags and the files select no cluster.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration is unusable.
    #[error("failed to set up the client of {place}")]
    Build {
        /// The API server, and what says where it is.
        place: Box<Place>,
        /// The error.
        source: Box<kube::Error>,
    },
}

/// A user and its groups.
pub type User<'u> = (&'u str, &'u [String]);

/// The address of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The host name or address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// An API server, and what says where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub server: Server,
    /// The configuration that has it.
    pub origin: Origin,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.server, self.origin)
    }
}

/// Creates a client. It connects at its first request.
pub async fn connect(args: &KubeArgs) -> Result<Client, ClientError> {
    Ok(connect_to(args).await?.0)
}

/// Creates a client, and returns the server's address.
pub async fn connect_to(args: &KubeArgs) -> Result<(Client, Server), ClientError> {
    let (client, place) = connect_as(args, None).await?;
    Ok((client, place.server))
}

/// Creates a client that acts on behalf of a user, if one is named, and returns where the server is.
pub async fn connect_as(
    args: &KubeArgs,
    user: Option<User<'_>>,
) -> Result<(Client, Place), ClientError> {
    let (mut config, origin) = kubeconfig::config(args).await?;
    if let Some((name, groups)) = user {
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.to_vec());
    }
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    let server = Server { host, port: url.port_u16().unwrap_or(default) };
    let place = Place { server, origin };
    match client(config) {
        Ok(client) => Ok((client, place)),
        Err(source) => Err(ClientError::Build { place: Box::new(place), source: Box::new(source) }),
    }
}

/// The client of this configuration, as [`Client::try_from`] makes it except for its traces and [`Retries`], and
/// without Nagle's algorithm, which holds the first request of each connection until the server acknowledges the end
/// of the TLS handshake: 40 ms (<https://github.com/kube-rs/kube/issues/2056>).
fn client(config: Config) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(connector())?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connections = Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let retries = config.default_retry.then(|| RetryLayer::new(Retries::default()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retries)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace))
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tower::ServiceExt;

    #[tokio::test]
    async fn requests_do_not_wait_for_acknowledgements() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", server.local_addr().unwrap()).parse().unwrap();
        let stream = connector().oneshot(url).await.unwrap();
        assert!(stream.inner().nodelay().unwrap());
    }
}
