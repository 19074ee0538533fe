//! Creates a Kubernetes client from the flags.

use crate::args::KubeArgs;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::fmt;
use std::path::PathBuf;

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
    let client = Client::try_from(config)
        .map_err(|source| ClientError::Build { source: Box::new(source) })?;
    Ok((client, server))
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
    let wrap = |source| ClientError::Kubeconfig { path: path.clone(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(wrap)?;
    Config::from_custom_kubeconfig(file, &options).await.map_err(wrap)
}
