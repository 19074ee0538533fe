//! What changes the machine: interfaces and RDMA devices into pods and back, by netlink, and
//! how many virtual functions there are.

pub mod attach;
pub(crate) mod netlink;
pub mod sriov;
