//! Finds the RDMA NICs of a node, publishes them and the node's topology.
//!
//! Facts ([`topology_graph::read`], [`cloud`]) → model ([`nic`]) → decision
//! ([`attributes`], [`decision`], [`slices`]) → effect ([`publish`]). Only the
//! first and the last do IO.

pub mod args;
pub mod attach;
pub mod attribute;
pub mod attributes;
mod boot_file;
pub mod cdi;
pub mod checkpoint;
pub mod claim_status;
pub mod cloud;
pub mod decision;
mod driver;
mod events;
mod fabric;
#[cfg(test)]
mod fake_server;
pub mod filter;
pub mod health;
pub mod held;
mod host;
#[cfg(test)]
mod live;
mod metrics;
mod netlink;
pub mod network;
pub mod nic;
pub mod node;
pub mod nri;
pub mod order;
mod pace;
mod pci_names;
pub mod plugin;
pub mod ports;
pub mod prepare;
pub mod probe;
pub mod publish;
pub mod rdma;
pub mod seen;
pub mod sharing;
pub mod slices;
mod uevents;
mod watch;

pub use driver::run;
