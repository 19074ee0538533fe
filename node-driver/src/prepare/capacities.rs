//! Capacities of devices that claims can share (KEP-5075): what a device has, and what a claim
//! has of it.

use cluster_model::names::capacity;
use dra_allocator::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Amounts by the names of capacities.
pub type Capacities = BTreeMap<String, i64>;

/// Reads the amounts. The API server accepts no malformed one.
pub(super) fn amounts<'a>(capacities: impl Iterator<Item = (&'a String, &'a Text)>) -> Capacities {
    let amount = |text: &Text| Some(text.0.parse::<Quantity>().ok()?.value());
    capacities.filter_map(|(name, text)| Some((name.clone(), amount(text)?))).collect()
}

/// The bandwidth among them, in bits per second.
pub(super) fn bandwidth(capacities: &Capacities) -> Option<u64> {
    let bits = capacities.get(capacity::BANDWIDTH)?;
    u64::try_from(*bits).ok().filter(|bits| *bits > 0)
}
