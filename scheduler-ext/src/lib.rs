//! The scheduler extender: ranks nodes first by what a pod gets there, then by what is
//! left for other pods.
//!
//! It only prioritizes. Alignment is part of the claim and does not need the extender; without it,
//! pods are still scheduled, only less well placed. `SCORES.md` explains what a point is worth.
//!
//! Bottom up: [`score`] is the pure decision. [`machine`] and [`forecast`] derive its
//! inputs from devices and allocations. [`answer`] holds scores with their inputs.
//! [`expected`], [`arrivals`], [`in_flight`] and [`answers`] are the memory; [`learn`]
//! scans the cluster. [`prioritize`] combines them for one request. This is everything without the
//! feature `server`; kubectl-dranet and simulator use it for their scores.

pub mod answer;
pub mod answers;
#[cfg(feature = "server")]
pub mod args;
pub mod arrivals;
#[cfg(feature = "server")]
mod debug;
#[cfg(feature = "server")]
mod events;
pub mod expected;
pub mod forecast;
#[cfg(feature = "server")]
mod gauges;
pub mod in_flight;
pub mod learn;
mod learned;
mod lock;
pub mod machine;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
pub mod pages;
pub mod prioritize;
pub mod score;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
pub mod wire;

#[cfg(feature = "server")]
pub use server::run;
