//! Publishes slices, the topology, claim statuses, events and metrics.

pub mod claim_status;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod nic_counters;
pub(crate) mod pace;
pub mod publisher;
