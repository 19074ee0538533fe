//! What happens to a claim on this node: a pure plan of what its pod gets, the
//! effects that make it so, and their undoing.
//!
//! Facts ([`inventory`], [`host_link`], the claim itself) → decision ([`plan`])
//! → effects ([`effects`]), with the [checkpoint] before and
//! after. Keyed by claim UID and idempotent, as the kubelet demands: either call
//! may be repeated after a failure, by a kubelet or a driver that was restarted.

mod addresses;
pub mod capacities;
pub mod checkpoint;
pub mod claim;
pub mod companions;
pub mod durable;
pub mod effects;
pub mod error;
pub mod host_link;
pub mod inventory;
pub mod lacking;
mod leases;
pub mod metadata;
pub mod node;
pub mod paths;
pub mod plan;
mod pod_events;
pub mod pools;
pub mod preparer;
pub mod published;
mod reconcile;
pub mod sandboxes;
pub(crate) mod turn;
pub mod wiring;

pub use claim::ClaimRef;
pub use node::PreparedDevice;
pub use plan::Plan;
pub use preparer::Preparer;
