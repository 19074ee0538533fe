//! The interface to the container runtime: CDI specs and NRI calls.

pub mod hook;
pub mod nri;
