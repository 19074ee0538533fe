//! What changes the machine: interfaces and RDMA devices into pods and back, by netlink.

pub mod attach;
pub(crate) mod netlink;
