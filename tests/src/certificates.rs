//! A certificate authority for each control plane, and the serving certificates that it signs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// The first address of kube-apiserver's `--service-cluster-ip-range`: that of its own Service.
pub(crate) const API_SERVICE: &str = "10.96.0.1";

/// An authority that exists as long as one control plane.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key, PKCS #8.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority with a new key.
    pub fn generate() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "dranet tests authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// The authority's certificate as PEM, for a `caBundle`.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's certificate as DER.
    pub fn der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// Signs a certificate for `localhost`, `127.0.0.1` and the address of the Service
    /// `kubernetes`, valid for servers and clients. Writes it and its key as `NAME.crt` and
    /// `NAME.key`.
    pub fn issue(&self, name: &str, directory: &Path) -> anyhow::Result<Identity> {
        let mut params = CertificateParams::new(vec![
            "localhost".into(),
            "127.0.0.1".into(),
            API_SERVICE.into(),
        ])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let identity = Identity {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// Writes a file; the error names it.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write `{}`", path.display()))
}
