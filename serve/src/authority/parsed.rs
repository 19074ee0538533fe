//! Parsed certificates: dates, names and issuers.

use super::CLOCK_SKEW;
use k8s_openapi::jiff::Timestamp;
use pem::Pem;
use rcgen::{KeyPair, PublicKeyData};
use std::net::IpAddr;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

/// The relevant fields of a certificate.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pem: Pem,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    public_key: Vec<u8>,
    not_before: Timestamp,
    not_after: Timestamp,
    names: Vec<String>,
}

/// The certificates in a PEM text, in order; anything else is skipped.
pub(super) fn certificates(pem: &str) -> Vec<Parsed> {
    let all = pem::parse_many(pem).unwrap_or_default();
    all.iter().filter_map(Parsed::read).collect()
}

impl Parsed {
    fn read(pem: &Pem) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(pem.contents()).ok()?;
        let validity = certificate.validity();
        let parsed = Self {
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            public_key: certificate.public_key().raw.to_vec(),
            not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            names: names(&certificate),
            pem: pem.clone(),
        };
        Some(parsed)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// Whether clients with this time refuse it because its validity begins later.
    pub(super) fn is_early(&self, now: Timestamp) -> bool {
        now < self.not_before
    }

    /// The end of its validity.
    pub(super) fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The time to renew it: two thirds of its lifetime.
    pub(super) fn due(&self) -> Timestamp {
        let third = self.not_after.duration_since(self.not_before) / 3;
        self.not_after.checked_sub(third).unwrap_or(self.not_after)
    }

    /// When it was created.
    pub(super) fn made(&self) -> Timestamp {
        self.not_before.checked_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX)
    }

    pub(super) fn is_signed_by(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }

    pub(super) fn has_key(&self, key_pem: &str) -> bool {
        KeyPair::from_pem(key_pem).is_ok_and(|key| key.subject_public_key_info() == self.public_key)
    }

    pub(super) fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    pub(super) fn pem(&self) -> String {
        pem::encode(&self.pem)
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let all = extension.iter().flat_map(|extension| &extension.value.general_names);
    all.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    })
    .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
