//! What cannot be understood of an object.

use crate::quantity::QuantityError;

/// An object could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// An object without a name.
    #[error("the {0} has no name")]
    NoName(&'static str),
    /// An amount in an object.
    #[error("the amount at `{at}` cannot be held")]
    Quantity {
        /// Where it stands.
        at: String,
        /// Why.
        source: QuantityError,
    },
}
