//! Decides what crate [`publication`] does not need to know: what is published while pods have NICs. Pure; time
//! is an argument.

pub(crate) mod binding;
pub(crate) mod look;
pub(crate) mod network_data;
pub(crate) mod peer_memory;
pub mod versions;
