//! Groups of flags that several servers share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where and how a server listens.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// Address to listen on; port 0 means any free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Certificate chain in PEM; read again when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities in PEM, read at the start: only clients with a certificate of theirs may connect
    /// (see --client-certificate). Without it, everyone who reaches the address may
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Common names of these certificates; with none, all that the authorities have signed
    #[arg(long = "client-name", value_name = "NAME", requires = "client_ca_file")]
    pub client_names: Vec<String>,
    /// Whether clients without such a certificate may connect
    #[arg(long, value_enum, value_name = "RULE", default_value_t, requires = "client_ca_file")]
    pub client_certificate: ClientCertificate,
}

/// Whether clients without a certificate may connect.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// They are refused.
    #[default]
    Required,
    /// They are answered, but never make a client with a certificate wait.
    Preferred,
}

/// Where health and metrics are served, in plain HTTP.
#[derive(clap::Args, Clone, Debug)]
pub struct OperationsArgs {
    /// Address of /healthz, /readyz and /metrics (plain HTTP); everyone who reaches it can read them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9178")]
    pub operations_listen: SocketAddr,
}

/// Leadership among replicas.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LeaseArgs {
    /// Seconds after which another replica takes over from a leader that has stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=300))]
    pub lease_seconds: u64,
}

impl LeaseArgs {
    /// The flag as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }
}
