//! Capacities of devices that claims can share (KEP-5075): those of a device, and the part that
//! a claim consumes.

use cluster_model::names::capacity;
use dra_allocator::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Amounts by capacity name.
pub type Capacities = BTreeMap<String, i64>;

/// Parses the amounts. The API server rejects malformed ones.
pub(super) fn amounts<'a>(capacities: impl Iterator<Item = (&'a String, &'a Text)>) -> Capacities {
    let parsed = capacities.filter_map(|(name, text)| {
        let amount: Quantity = text.0.parse().ok()?;
        Some((name.clone(), amount.value()))
    });
    parsed.collect()
}

/// The bandwidth among them, in bits per second.
pub(super) fn bandwidth(capacities: &Capacities) -> Option<u64> {
    let bits = capacities.get(capacity::BANDWIDTH)?;
    u64::try_from(*bits).ok().filter(|bits| *bits > 0)
}
