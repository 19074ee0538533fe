//! What publishes: slices and graph, statuses of claims, events and metrics.

pub mod claim_status;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod pace;
pub mod publisher;
