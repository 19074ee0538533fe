//! Kubernetes' objects into this crate's values, and results back.
//!
//! The only module that names `k8s_openapi` types besides the index. Objects come from an API
//! server that has validated them; what cannot be held is refused with the place it stands at.

mod claim;
mod node;
mod result;
mod slice;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::name::QualifiedName;
use crate::quantity::{Quantity, QuantityError};

pub(crate) use claim::{HeldDevice, allocated_devices, claim_name, class};
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

/// Texts that are held once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    texts: HashSet<Arc<str>>,
    /// Lists of attribute names: devices of one kind have the same.
    schemas: HashSet<Arc<[QualifiedName]>>,
}

impl Interner {
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    pub(crate) fn optional(&mut self, text: Option<&String>) -> Arc<str> {
        self.text(text.map_or("", |text| text))
    }

    pub(crate) fn texts(&mut self, texts: Option<&Vec<String>>) -> Vec<Arc<str>> {
        texts.into_iter().flatten().map(|text| self.text(text)).collect()
    }

    pub(crate) fn schema(&mut self, names: Vec<QualifiedName>) -> Arc<[QualifiedName]> {
        if let Some(known) = self.schemas.get(names.as_slice()) {
            return known.clone();
        }
        let names: Arc<[QualifiedName]> = names.into();
        self.schemas.insert(names.clone());
        names
    }

    /// Forgets what nobody else holds.
    pub(crate) fn shrink(&mut self) {
        self.schemas.retain(|names| Arc::strong_count(names) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }
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
