//! What the container runtime is told and asks: CDI specs, and calls by NRI.

pub mod cdi;
pub mod nri;
