//! The scheduler extender: ranks nodes by what they would keep.
//!
//! It only prioritizes. Alignment is in the claim and holds without it; with it
//! down pods still schedule, only less well placed.

pub mod args;
mod metrics;
pub mod score;
mod server;
pub mod wire;

pub use server::run;
