//! A Kubernetes client from the flags.

use crate::args::KubeArgs;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::path::PathBuf;

/// No client could be made from the flags.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file is missing or malformed.
    #[error("failed to read kubeconfig `{}`", path.display())]
    Kubeconfig {
        /// The file that was named.
        path: PathBuf,
        /// Why it could not be read.
        source: Box<KubeconfigError>,
    },
    /// No configuration was named and none was found.
    #[error("found no cluster; name a file by --kubeconfig")]
    Infer {
        /// What was tried.
        source: Box<InferConfigError>,
    },
    /// The configuration names something that a client cannot be built from.
    #[error("failed to set up the Kubernetes client")]
    Build {
        /// What was wrong.
        source: Box<kube::Error>,
    },
}

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name or address, that of IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Builds the client. It connects at its first request.
pub async fn connect(args: &KubeArgs) -> Result<Client, ClientError> {
    Ok(connect_to(args).await?.0)
}

/// Builds the client, and says to which server.
pub async fn connect_to(args: &KubeArgs) -> Result<(Client, Server), ClientError> {
    let config = config(args).await?;
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
