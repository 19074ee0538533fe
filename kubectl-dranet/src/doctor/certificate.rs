//! Reads the expiry of a bundle of certificates.

use jiff::Timestamp;

/// When the last certificate of a `caBundle` (base64 of PEM) expires.
///
/// # Errors
/// What it contains instead of certificates.
#[cfg(feature = "live")]
pub(super) fn last_end(bundle: &str) -> Result<Option<Timestamp>, String> {
    let pem: k8s_openapi::ByteString = serde_json::from_value(bundle.into())
        .map_err(|error: serde_json::Error| error.to_string())?;
    let mut last = None;
    for block in x509_parser::pem::Pem::iter_from_buffer(&pem.0) {
        let block = block.map_err(|error| error.to_string())?;
        let certificate = block.parse_x509().map_err(|error| error.to_string())?;
        let end = Timestamp::from_second(certificate.validity().not_after.timestamp());
        last = last.max(end.ok());
    }
    if last.is_none() {
        return Err("it holds no PEM block".to_owned());
    }
    Ok(last)
}

/// A build for files only does not parse certificates.
#[cfg(not(feature = "live"))]
#[expect(clippy::unnecessary_wraps, reason = "same signature as the other")]
pub(super) fn last_end(_: &str) -> Result<Option<Timestamp>, String> {
    Ok(None)
}
