//! A certificate authority for a single server: its certificates and keys, when each must be
//! renewed, and the renewal.
//!
//! Every decision depends only on the current bundle and the time. A new authority is first
//! published beside the old one, and signs only after all clients have had time to learn it. A
//! client never sees a certificate that it cannot trust.

mod parsed;

use k8s_openapi::jiff::Timestamp;
use parsed::{Parsed, certificates};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::time::Duration;
use time::OffsetDateTime;

/// The lifetime of an authority.
const AUTHORITY_LIFE: Duration = Duration::from_hours(24 * 365 * 3);
/// The lifetime of a serving certificate.
const SERVING_LIFE: Duration = Duration::from_hours(24 * 90);
/// How long a new authority is published before it signs.
const PUBLISHED: Duration = Duration::from_hours(1);
/// How far the start of validity lies in the past, for clients with slow clocks.
const CLOCK_SKEW: Duration = Duration::from_mins(10);

/// Authorities and the serving certificate, all in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateBundle {
    /// The authorities that clients trust, the newest first.
    pub authorities: String,
    /// The private key of the newest authority.
    pub authority_key: String,
    /// The serving certificate.
    pub certificate: String,
    /// The private key of the serving certificate.
    pub key: String,
}

/// A certificate could not be created.
#[derive(Debug, thiserror::Error)]
#[error("failed to make a certificate for {}", names.join(", "))]
pub struct CertificateError {
    names: Vec<String>,
    source: rcgen::Error,
}

/// What must be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// The serving certificate, signed by the existing authority.
    Serving,
    /// An additional authority, which does not sign yet.
    Authority,
    /// Everything, since nothing usable exists.
    All,
}

impl CertificateBundle {
    /// Returns the bundle that replaces this one for a server with these names; `None` if no part
    /// is due.
    pub fn renewed(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<Option<Self>, CertificateError> {
        let made = match self.due(names, now) {
            Due::Nothing => return Ok(None),
            Due::Serving => self.with_serving(names, now),
            Due::Authority => self.with_authority(now),
            Due::All => {
                Self::default().with_authority(now).and_then(|it| it.with_serving(names, now))
            }
        };
        made.map(Some).map_err(|source| CertificateError { names: names.to_vec(), source })
    }

    /// The time at which a part of a valid bundle becomes due; from then on [`Self::renewed`]
    /// returns a replacement.
    pub fn next_due(&self) -> Option<Timestamp> {
        let authorities = certificates(&self.authorities);
        let serving = certificates(&self.certificate);
        let (newest, serving) = (authorities.first()?, serving.first()?);
        let serving = if serving.is_signed_by(newest) { serving.due() } else { may_sign(newest) };
        [newest.not_after(), newest.due(), serving].into_iter().min()
    }

    fn due(&self, names: &[String], now: Timestamp) -> Due {
        let authorities = certificates(&self.authorities);
        let serving = certificates(&self.certificate);
        let (Some(newest), Some(serving)) = (authorities.first(), serving.first()) else {
            return Due::All;
        };
        // Clients refuse what a clock that was ahead has made until its validity begins.
        let valid = authorities.iter().filter(|authority| !authority.is_early(now));
        let trusted = valid.into_iter().any(|authority| serving.is_signed_by(authority));
        let pairs = newest.has_key(&self.authority_key) && serving.has_key(&self.key);
        if !trusted || !pairs || newest.is_over(now) {
            return Due::All;
        }
        let signed_by_newest = serving.is_signed_by(newest);
        let may_sign = signed_by_newest || now >= may_sign(newest);
        match (newest.is_early(now), serving.is_early(now)) {
            (false, true) if may_sign => return Due::Serving,
            (_, true) => return Due::All,
            (true, false) => return Due::Authority,
            (false, false) => {}
        }
        if may_sign && (!signed_by_newest || now >= serving.due() || !serving.is_for(names)) {
            return Due::Serving;
        }
        if now >= newest.due() {
            return Due::Authority;
        }
        Due::Nothing
    }

    /// Adds an authority and removes those that are not valid now.
    fn with_authority(&self, now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = params(&[], now, AUTHORITY_LIFE)?;
        // A unique name, by which a certificate identifies its issuer.
        params.distinguished_name.push(DnType::CommonName, format!("dranet authority {now}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let mut authorities = params.self_signed(&key)?.pem();
        for old in certificates(&self.authorities) {
            if !old.is_over(now) && !old.is_early(now) {
                authorities.push_str(&old.pem());
            }
        }
        Ok(Self { authorities, authority_key: key.serialize_pem(), ..self.clone() })
    }

    /// Creates a serving certificate signed by the newest authority.
    fn with_serving(&self, names: &[String], now: Timestamp) -> Result<Self, rcgen::Error> {
        let authority_key = KeyPair::from_pem(&self.authority_key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.authorities, authority_key)?;
        let key = KeyPair::generate()?;
        let mut params = params(names, now, SERVING_LIFE)?;
        let name = names.first().map_or("server", String::as_str);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), ..self.clone() })
    }
}

/// The time from which an authority may sign: every client has had time to learn it.
fn may_sign(authority: &Parsed) -> Timestamp {
    authority.made().checked_add(PUBLISHED).unwrap_or(Timestamp::MAX)
}

fn params(
    names: &[String],
    now: Timestamp,
    life: Duration,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    // A `Timestamp` of a running clock is always within the years 1 to 9999.
    let now =
        OffsetDateTime::from_unix_timestamp(now.as_second()).map_err(|_| rcgen::Error::Time)?;
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + life;
    Ok(params)
}

#[cfg(test)]
mod tests;
