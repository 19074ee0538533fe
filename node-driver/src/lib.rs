//! Finds the RDMA NICs of a node, publishes them and the node's topology, and prepares
//! them for the containers of claims.
//!
//! One module per stage, from the bottom: [`model`] has the values that stages hand to each other, [`kernel`]
//! reads and changes namespaces and interfaces, [`facts`] reads the machine, and [`decide`], with crate
//! [`publication`], decides. [`publish`] writes to the API server; [`prepare`] plans and writes what a claim
//! gets. [`claims`] serves those who ask for claims: the container [`runtime`], by a hook or NRI, and the
//! [`kubelet`]. `driver` runs all of it; `setup` prepares the host.

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
pub mod prepare;
pub mod probe;
#[cfg(test)]
mod protocol;
pub mod publish;
pub mod runtime;
mod setup;

pub use driver::run;
