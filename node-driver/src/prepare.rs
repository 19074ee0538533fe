//! Prepares and unprepares claims on this node: plans what the pod gets (pure), applies the
//! plan, and undoes it.
//!
//! Facts ([`inventory`], [`host_link`](crate::model::host_link), the claim itself) → decision ([`plan`]) → effects
//! ([`effects`]), with the checkpoint written before and after. Keyed by claim UID and
//! idempotent, as the kubelet requires: a restarted kubelet or driver may repeat either call
//! after a failure.

pub(crate) mod addresses;
pub mod capacities;
pub mod cdi;
pub mod claim;
pub mod companions;
pub mod current;
pub mod effects;
pub mod error;
mod interfaces;
pub mod inventory;
pub mod late;
mod leases;
pub mod local;
pub mod metadata;
pub mod metrics;
pub mod notices;
pub mod plan;
pub mod pools;
pub mod published;
mod reconcile;
mod reserve;
pub mod sandboxes;
mod uppers;
pub mod wiring;

pub use local::{Abandoned, PreparedDevice};
