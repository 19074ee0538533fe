//! The server's certificate: read from files and reloaded when they change, or set and replaced by
//! the program itself.
//!
//! A Secret volume swaps a symbolic link above the files. The files themselves are never written,
//! so watching them does not work: they are read at intervals and compared.

pub mod clients;

use crate::tls::clients::Clients;
use axum_server::tls_rustls::RustlsConfig;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval between reads of the files; certificate managers renew at least an hour before
/// expiry.
const RELOAD_PERIOD: Duration = Duration::from_secs(30);

/// A certificate could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The given text is not a certificate with its key.
    #[error("the given text is not a certificate with its key in PEM")]
    Given {
        /// The error.
        source: io::Error,
    },
    /// Clients cannot be asked for certificates without TLS.
    #[error("--client-ca-file needs --tls-cert and --tls-key")]
    Plain,
    /// The authorities of clients cannot be used.
    #[error("`{}` has no authority for the certificates of clients", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The files do not hold a certificate and its key.
    #[error("`{}` and `{}` are not a certificate with its key in PEM", cert.display(), key.display())]
    Parse {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A certificate that follows its files.
#[derive(Clone, Debug)]
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    config: RustlsConfig,
    clients: Clients,
    pem: (Vec<u8>, Vec<u8>),
}

impl Certificate {
    /// Reads the certificate chain and the key, both PEM.
    pub async fn load(cert: &Path, key: &Path, clients: Clients) -> Result<Self, TlsError> {
        let pem = (read(cert).await?, read(key).await?);
        let config = clients
            .server_config(&pem.0, &pem.1)
            .map_err(|source| parse_error(cert, key, source))?;
        let config = RustlsConfig::from_config(config);
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), config, clients, pem })
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The TLS configuration of a listener; it follows later reloads.
    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Reloads the files at intervals until the token is cancelled. An unusable pair is logged, and
    /// the current one stays.
    pub async fn follow(mut self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(RELOAD_PERIOD);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            match self.reload().await {
                Ok(true) => tracing::info!(cert = %self.cert.display(), "Certificate reloaded"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = %process::chain::Chain(&error), "Certificate not reloaded");
                }
            }
        }
    }

    /// Reads the files again. Returns true if they changed and are now in use.
    pub async fn reload(&mut self) -> Result<bool, TlsError> {
        let pem = (read(&self.cert).await?, read(&self.key).await?);
        if pem == self.pem {
            return Ok(false);
        }
        let config = self
            .clients
            .server_config(&pem.0, &pem.1)
            .map_err(|source| parse_error(&self.cert, &self.key, source))?;
        self.config.reload_from_config(config);
        self.pem = pem;
        Ok(true)
    }
}

/// A certificate that the program itself replaces while it is served.
#[derive(Clone, Debug)]
pub struct Identity {
    config: RustlsConfig,
    clients: Clients,
}

impl Identity {
    /// Creates an identity from a certificate chain and its key, both PEM.
    pub fn new(cert: &str, key: &str, clients: Clients) -> Result<Self, TlsError> {
        let config = clients.server_config(cert.as_bytes(), key.as_bytes());
        let config = config.map_err(|source| TlsError::Given { source })?;
        Ok(Self { config: RustlsConfig::from_config(config), clients })
    }

    /// Replaces the certificate for new connections. If the new one is unusable, the old one stays.
    pub fn replace(&self, cert: &str, key: &str) -> Result<(), TlsError> {
        let config = self.clients.server_config(cert.as_bytes(), key.as_bytes());
        self.config.reload_from_config(config.map_err(|source| TlsError::Given { source })?);
        Ok(())
    }

    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    tokio::fs::read(path).await.map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn parse_error(cert: &Path, key: &Path, source: io::Error) -> TlsError {
    TlsError::Parse { cert: cert.to_owned(), key: key.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write_pair(folder: &Path) -> (PathBuf, PathBuf) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        fs::write(&cert, pair.cert.pem()).unwrap();
        fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        (cert, key)
    }

    #[tokio::test]
    async fn follows_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = write_pair(folder.path());
        let mut certificate = Certificate::load(&cert, &key, Clients::default()).await.unwrap();
        assert!(!certificate.reload().await.unwrap(), "nothing changed");
        write_pair(folder.path());
        assert!(certificate.reload().await.unwrap(), "a new pair is taken");
        fs::write(&key, "no key").unwrap();
        assert!(certificate.reload().await.is_err(), "a broken pair is refused");
    }

    #[test]
    fn invalid_pairs_are_rejected() {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        let identity = Identity::new(&cert, &key, Clients::default()).unwrap();
        identity.replace(&cert, &key).unwrap();
        assert!(identity.replace(&cert, "no key").is_err());
        assert!(Identity::new("no certificate", &key, Clients::default()).is_err());
    }

    #[tokio::test]
    async fn names_the_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("tls.crt");
        let error = Certificate::load(&missing, &missing, Clients::default()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("failed to read `{}`", missing.display()));
    }
}
