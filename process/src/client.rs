//! Creates a Kubernetes client from the flags.

use crate::args::KubeArgs;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::fmt;
use std::path::PathBuf;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// A client cannot be created from the flags.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file is missing or malformed.
    #[error("failed to read kubeconfig `{}`", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<KubeconfigError>,
    },
    /// No configuration was named and none was found.
    #[error("found no cluster configuration; set --kubeconfig")]
    Infer {
        /// The error.
        source: Box<InferConfigError>,
    },
    /// The configuration is unusable.
    #[error("failed to set up the Kubernetes client")]
    Build {
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

/// Creates a client. It connects at its first request.
pub async fn connect(args: &KubeArgs) -> Result<Client, ClientError> {
    Ok(connect_to(args).await?.0)
}

/// Creates a client, and returns the server's address.
pub async fn connect_to(args: &KubeArgs) -> Result<(Client, Server), ClientError> {
    connect_as(args, None).await
}

/// Creates a client that acts on behalf of a user, if one is named, and returns the server's
/// address.
pub async fn connect_as(
    args: &KubeArgs,
    user: Option<User<'_>>,
) -> Result<(Client, Server), ClientError> {
    let mut config = config(args).await?;
    if let Some((name, groups)) = user {
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.to_vec());
    }
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    let server = Server { host, port: url.port_u16().unwrap_or(default) };
    let client =
        client(config).map_err(|source| ClientError::Build { source: Box::new(source) })?;
    Ok((client, server))
}

/// The client of this configuration, as [`Client::try_from`] makes it except for its traces, and
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
    let retries = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
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

async fn config(args: &KubeArgs) -> Result<Config, ClientError> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let Some(path) = &args.kubeconfig else {
        if args.context.is_none() {
            return Config::infer()
                .await
                .map_err(|source| ClientError::Infer { source: Box::new(source) });
        }
        return Config::from_kubeconfig(&options).await.map_err(|source| ClientError::Kubeconfig {
            path: PathBuf::from("~/.kube/config"),
            source: Box::new(source),
        });
    };
    match Kubeconfig::read_from(path) {
        Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
        Err(error) => Err(error),
    }
    .map_err(|source| ClientError::Kubeconfig { path: path.clone(), source: Box::new(source) })
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
