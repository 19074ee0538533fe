//! What prepares a host once, before pods use its NICs: kernel modules that RDMA needs ([`modules`]), a
//! vendor's NIC driver that comes in a container ([`vendor_driver`]), and virtual functions
//! ([`virtual_functions`]).
//!
//! [`Setup`] is the part that runs in the node's driver. It says at each look which devices cannot be
//! published yet. What it must know of claims, it asks by the traits in [`node`].

pub mod args;
#[cfg(test)]
mod fake;
mod look;
pub mod modules;
pub mod node;
mod notice;
pub mod vendor_driver;
pub mod virtual_functions;

pub use look::{Setup, Start};
pub use virtual_functions::create::Place;
