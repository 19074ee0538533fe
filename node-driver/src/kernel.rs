//! Changes the machine: moves interfaces and RDMA devices into pods and back by netlink.

pub mod attach;
pub(crate) mod dump;
pub(crate) mod generic;
pub mod memlock;
pub(crate) mod net_sysfs;
pub(crate) mod netlink;
pub mod network;
pub(crate) mod nldev;
pub(crate) mod route_socket;
