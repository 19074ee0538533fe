//! Errors of converting objects.

use crate::quantity::QuantityError;

/// An object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// An object without a name.
    #[error("the {0} has no name")]
    NoName(&'static str),
    /// An amount in an object is invalid.
    #[error("invalid amount at `{at}`")]
    Quantity {
        /// Its location.
        at: String,
        /// The error.
        source: QuantityError,
    },
}
