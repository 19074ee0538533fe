//! Errors of reading and writing objects of the API server.

use kube::Error;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// An object could not be read.
    #[error("failed to read {kind} `{name}`")]
    Read {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The error.
        source: Box<Error>,
    },
    /// An object could not be written.
    #[error("failed to write {kind} `{name}`")]
    Write {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The error.
        source: Box<Error>,
    },
}

/// Whether the object is gone, or has changed since the decision to write it.
pub fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_conflict() || status.is_not_found())
}

/// An error of reading `kind` `name`.
pub fn reading(kind: &'static str, name: &str) -> impl FnOnce(Error) -> ApiError {
    move |source| ApiError::Read { kind, name: name.to_owned(), source: Box::new(source) }
}

/// An error of writing.
pub fn writing(kind: &'static str, name: &str) -> impl FnOnce(Error) -> ApiError {
    move |source| ApiError::Write { kind, name: name.to_owned(), source: Box::new(source) }
}
