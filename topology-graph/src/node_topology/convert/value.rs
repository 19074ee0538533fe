//! Converts single fields from and to text.

use std::str::FromStr;

use crate::graph::Place;
use crate::{Evidence, PcieLink};

/// A `NodeTopology` is not a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A field holds an invalid value.
    #[error("unexpected value `{value}` in `{field}`")]
    Value {
        /// The path of the field below `spec`.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// The vertices do not form a forest.
    #[error("the vertices do not form a forest: {0}")]
    Graph(String),
}

pub(super) fn optional<T>(
    text: Option<&String>,
    parse: impl FnOnce(&str) -> Result<T, SpecError>,
) -> Result<Option<T>, SpecError> {
    text.map(|text| parse(text)).transpose()
}

pub(super) fn value<T: FromStr>(field: &'static str, text: &str) -> Result<T, SpecError> {
    text.parse().map_err(|_| unexpected(field, text))
}

pub(super) fn unexpected(field: &'static str, text: &str) -> SpecError {
    SpecError::Value { field, value: text.to_owned() }
}

pub(super) fn place(field: &'static str, text: &str) -> Result<Place, SpecError> {
    let root = text.parse().map(Place::Root);
    root.or_else(|_| value(field, text).map(Place::Function))
}

/// The text of a source; `None` for the kernel, which is the default.
pub(super) fn evidence_text(evidence: &Evidence) -> Option<String> {
    (*evidence != Evidence::Sysfs).then(|| evidence.to_string())
}

pub(super) fn evidence(field: &'static str, text: Option<&String>) -> Result<Evidence, SpecError> {
    text.map_or(Ok(Evidence::Sysfs), |text| value(field, text))
}

/// Parses a hexadecimal number with exactly this number of digits.
pub(super) fn hex(field: &'static str, text: &str, digits: usize) -> Result<u32, SpecError> {
    u32::from_str_radix(text, 16)
        .ok()
        .filter(|value| format!("{value:0digits$x}") == text)
        .ok_or_else(|| unexpected(field, text))
}

/// Parses `15b3:101e`.
pub(super) fn id(field: &'static str, text: &str) -> Result<(u16, u16), SpecError> {
    let (vendor, device) = text.split_once(':').ok_or_else(|| unexpected(field, text))?;
    Ok((half_of_id(field, vendor)?, half_of_id(field, device)?))
}

fn half_of_id(field: &'static str, text: &str) -> Result<u16, SpecError> {
    u16::try_from(hex(field, text, 4)?).map_err(|_| unexpected(field, text))
}

pub(super) fn link_text(link: PcieLink) -> String {
    format!("{}x{}", link.megatransfers, link.width)
}

pub(super) fn link(field: &'static str, text: &str) -> Result<PcieLink, SpecError> {
    let (speed, width) = text.split_once('x').ok_or_else(|| unexpected(field, text))?;
    Ok(PcieLink { megatransfers: value(field, speed)?, width: value(field, width)? })
}
