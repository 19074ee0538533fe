//! The interface to the container runtime: CDI specs and NRI calls.

pub mod cdi;
mod mappings;
pub mod nri;
