//! Reads the network interfaces of the host's namespace, and what the host uses them for, from
//! rtnetlink.

pub mod changes;
pub(crate) mod dump;
pub mod kernel;
mod nexthops;
pub mod server;
pub mod uplinks;
