//! A real node on this machine: containerd, runc and a kubelet in separate network, mount and PID
//! namespaces. Nothing of it outlives the test, and the machine is not changed.
//!
//! It is not a container: root, cgroups and devices are the machine's. Needs root.

mod borrowed;
pub(crate) mod containerd;
pub mod device_plugin;
mod frame;
pub mod gpu_driver;
pub mod image;
mod isolation;
pub(crate) mod kubelet;
pub mod links;
mod machine;
mod nic;
pub mod nri;
pub mod plugin;
pub mod pods;

pub use frame::{with_machine, with_played_machine};
pub use isolation::{isolated, isolated_with};
pub use machine::Machine;
pub use nic::{Nic, device_name};
