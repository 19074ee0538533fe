//! Finds the RDMA NICs of a node, publishes them and the node's topology.
//!
//! Facts ([`topology_graph::read`], [`cloud`]) → model ([`nic`]) → decision
//! ([`attributes`], [`decision`], [`slices`]) → effect ([`publish`]). Only the
//! first and the last do IO.

pub mod args;
pub mod attribute;
pub mod attributes;
pub mod cloud;
pub mod decision;
mod driver;
#[cfg(test)]
mod fake_server;
pub mod filter;
pub mod health;
mod host;
#[cfg(test)]
mod live;
mod metrics;
pub mod network;
pub mod nic;
pub mod node;
mod pace;
mod pci_names;
mod ports;
pub mod publish;
pub mod slices;
mod uevents;
mod watch;

pub use driver::run;
