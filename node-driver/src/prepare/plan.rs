//! Decides what a claim's pod gets. A pure function of the claim, the node's devices and what other
//! claims hold.

mod cloud;
mod decide;
mod error;
mod facts;
mod link;
mod names;

pub use decide::plan;
pub use error::{PlanError, Refusal};
pub use facts::{Facts, Policy};

#[cfg(test)]
mod tests;
