//! Reads the facts: the machine from sysfs, netlink and uevents, its cloud, and the devices
//! that pods have. Nothing here decides.

pub(crate) mod claims;
pub mod cloud;
pub mod errors;
pub mod held;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod kubelet_config;
pub(crate) mod modules;
pub mod network;
pub mod node;
pub mod pod_resources;
pub mod ports;
pub(crate) mod rails;
pub mod rdma;
pub mod reads;
pub(crate) mod uevents;
pub(crate) mod watch;
