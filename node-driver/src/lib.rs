//! Finds the RDMA NICs of a node, publishes them and the node's topology, and prepares
//! them for the containers of claims.
//!
//! One module per stage. Publishing: [`facts`] → crate [`publication`] and [`decide`] → [`publish`]. Preparing a
//! claim: the [`kubelet`] asks, [`prepare`] plans and writes, [`kernel`] moves
//! interfaces, and the container [`runtime`] starts the hook or calls the NRI plugin.
//! `driver` runs all of it. [`model`] has the values that stages hand to each other.

pub mod args;
pub mod claims;
pub mod command;
pub mod decide;
mod driver;
pub mod facts;
#[cfg(test)]
mod fake_server;
pub mod inspect;
pub mod kernel;
pub mod kubelet;
pub mod model;
pub mod modules;
pub mod prepare;
pub mod probe;
pub mod publish;
pub mod runtime;
pub mod vendor_driver;

pub use driver::run;
