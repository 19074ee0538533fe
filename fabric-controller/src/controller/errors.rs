//! Errors of reading and writing objects.

use kube::Error;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// An object could not be read.
    #[error("failed to read {kind} `{name}`")]
    Read { kind: &'static str, name: String, source: Box<Error> },
    /// An object could not be written.
    #[error("failed to write {kind} `{name}`")]
    Write { kind: &'static str, name: String, source: Box<Error> },
}

/// Whether the object is gone, or has changed since the decision to write it.
pub(super) fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_conflict() || status.is_not_found())
}

/// An error of reading `kind` `name`.
pub(super) fn reading(kind: &'static str, name: &str) -> impl FnOnce(Error) -> ApiError {
    move |source| ApiError::Read { kind, name: name.to_owned(), source: Box::new(source) }
}

/// An error of writing.
pub(super) fn writing(kind: &'static str, name: &str) -> impl FnOnce(Error) -> ApiError {
    move |source| ApiError::Write { kind, name: name.to_owned(), source: Box::new(source) }
}
