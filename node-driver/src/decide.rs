//! Decides what crate [`publication`] does not need to know: what is published while pods have NICs, how
//! many virtual functions there are, and when a vendor's driver is replaced. Pure; time is an argument.

pub(crate) mod binding;
pub(crate) mod look;
pub(crate) mod modules;
pub(crate) mod network_data;
pub mod vendor_driver;
pub mod versions;
pub mod virtual_functions;
