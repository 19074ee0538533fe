//! The files of the programs of a node: the driver, its hook, and those that prepare the host. Where they
//! are, how they are written, and which boot they are of.

pub mod boot;
pub mod boot_file;
pub mod durable;
pub mod install;
pub mod paths;
pub mod turn;
