//! Amounts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use super::error::WireError;
use super::interner::Interner;
use crate::name::QualifiedName;
use crate::quantity::Quantity;

pub(super) fn quantity(wire: &WireQuantity, at: &str) -> Result<Quantity, WireError> {
    wire.0.trim().parse().map_err(|source| WireError::Quantity { at: at.to_owned(), source })
}

pub(super) fn optional_quantity(
    wire: Option<&WireQuantity>,
    at: &str,
) -> Result<Option<Quantity>, WireError> {
    wire.map(|wire| quantity(wire, at)).transpose()
}

pub(super) fn quantities(
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
