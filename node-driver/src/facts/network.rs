//! Reads the network interfaces of the host's namespace, and what the host uses them for, from
//! rtnetlink.

pub mod changes;
pub mod kernel;
pub mod server;
pub mod uplinks;
