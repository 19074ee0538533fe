//! Who may use a port with TLS: anyone, or clients with a certificate of an authority, all of them or
//! those with certain names. A port can also admit anyone and prefer such clients.

use crate::args::{ClientCertificate, ServerArgs};
use crate::tls::TlsError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The clients of a port.
#[derive(Clone, Debug, Default)]
pub struct Clients(Option<Arc<KnownClients>>);

/// Clients that are known by their certificates.
#[derive(Debug)]
struct KnownClients {
    authority: Arc<dyn ClientCertVerifier>,
    /// The common names that are allowed; empty allows all.
    names: Vec<String>,
    certificate: ClientCertificate,
}

/// The file has no usable authority.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error("it has no certificate in PEM")]
    None,
    #[error(transparent)]
    Pem(#[from] pem::Error),
    #[error(transparent)]
    Certificate(#[from] Error),
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

impl Clients {
    /// The clients that the flags allow.
    pub async fn from_args(args: &ServerArgs) -> Result<Self, TlsError> {
        match &args.client_ca_file {
            Some(path) => {
                Self::of_authority(path, &args.client_names, args.client_certificate).await
            }
            None => Ok(Self::default()),
        }
    }

    /// Whether the port prefers clients with a certificate, and also answers others.
    pub fn are_preferred(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.certificate == ClientCertificate::Preferred)
    }

    /// Whether the port prefers the client that has shown these certificates, its own first.
    pub(crate) fn prefer(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(known), [own, others @ ..]) = (&self.0, chain) else { return false };
        self.are_preferred() && known.verify(own, others, UnixTime::now()).is_ok()
    }

    /// Clients with certificates of the authorities in this file, and with one of these common names
    /// if there are any.
    pub async fn of_authority(
        path: &Path,
        names: &[String],
        certificate: ClientCertificate,
    ) -> Result<Self, TlsError> {
        let read = tokio::fs::read(path).await;
        let pem = read.map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
        let authority = authority(&pem).map_err(|error| unusable(path.to_owned(), error))?;
        Ok(Self(Some(Arc::new(KnownClients { authority, names: names.to_vec(), certificate }))))
    }

    /// The configuration of a server with this certificate chain and key, both PEM.
    pub(crate) fn server_config(&self, cert: &[u8], key: &[u8]) -> io::Result<Arc<ServerConfig>> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
        let key = PrivateKeyDer::from_pem_slice(key);
        let builder = match &self.0 {
            Some(known) => ServerConfig::builder().with_client_cert_verifier(known.clone()),
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let (chain, key) = (chain.map_err(io::Error::other)?, key.map_err(io::Error::other)?);
        let mut config = builder.with_single_cert(chain, key).map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn authority(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, AuthorityError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(AuthorityError::None);
    }
    Ok(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
}

fn unusable(path: PathBuf, error: AuthorityError) -> TlsError {
    TlsError::Authority { path, source: io::Error::other(error) }
}

/// The common name of a certificate's subject.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    names.next()?.as_str().ok().map(str::to_owned)
}

impl KnownClients {
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.authority.verify_client_cert(end_entity, intermediates, now)?;
        let name = common_name(end_entity);
        if self.names.is_empty() || name.is_some_and(|name| self.names.contains(&name)) {
            return Ok(verified);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

impl ClientCertVerifier for KnownClients {
    fn client_auth_mandatory(&self) -> bool {
        self.certificate == ClientCertificate::Required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.certificate {
            ClientCertificate::Required => self.verify(end_entity, intermediates, now),
            // One that has expired, or is of another authority, is as none: an API server whose
            // certificate was not renewed is still answered.
            ClientCertificate::Preferred => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}
