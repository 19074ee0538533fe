//! The interface to the container runtime: CDI specs, and calls by NRI.

pub mod cdi;
pub mod nri;
