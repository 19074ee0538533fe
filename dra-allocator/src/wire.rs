//! Kubernetes' objects into this crate's values, and results back.
//!
//! The only module that names `k8s_openapi` types besides the index. Objects come from an API
//! server that has validated them; what cannot be held is refused with the place it stands at.

mod claim;
mod interner;
mod node;
mod result;
mod slice;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::name::QualifiedName;
use crate::quantity::{Quantity, QuantityError};

pub(crate) use claim::{HeldDevice, allocated_devices, claim_name, class};
pub(crate) use interner::Interner;
pub(crate) use node::node;
pub(crate) use slice::slice;

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

pub(crate) fn quantity(wire: &WireQuantity, at: &str) -> Result<Quantity, WireError> {
    wire.0.trim().parse().map_err(|source| WireError::Quantity { at: at.to_owned(), source })
}

fn optional_quantity(wire: Option<&WireQuantity>, at: &str) -> Result<Option<Quantity>, WireError> {
    wire.map(|wire| quantity(wire, at)).transpose()
}

fn quantities(
    wire: &BTreeMap<String, WireQuantity>,
    at: &str,
    texts: &mut Interner,
) -> Result<Vec<(QualifiedName, Quantity)>, WireError> {
    wire.iter()
        .map(|(name, wire)| {
            let value = quantity(wire, &format!("{at}.{name}"))?;
            Ok((QualifiedName::new(texts.text(name)), value))
        })
        .collect()
}
