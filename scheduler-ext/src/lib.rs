//! The scheduler extender: ranks nodes by what a pod gets there, and then by what is
//! left for others.
//!
//! It only prioritizes. Alignment is in the claim and holds without it; with it
//! down pods still schedule, only less well placed. `SCORES.md` says what a point is
//! worth.
//!
//! Bottom up: [`score`] is the pure decision; [`machine`] and [`forecast`] make its
//! values from devices and allocations; [`answer`] holds them with what they were made
//! from; [`expected`], [`in_flight`] and [`answers`] are what is remembered, [`learn`]
//! looks at the cluster; [`prioritize`] puts them together for one request. Without the feature
//! `server` this is all: kubectl-dranet and simulator score by it.

pub mod answer;
pub mod answers;
#[cfg(feature = "server")]
pub mod args;
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
