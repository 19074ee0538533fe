//! Decides what to publish: derives NICs, their attributes, taints and slices from the
//! facts. Pure; time is an argument.

pub mod attribute;
pub mod attributes;
pub(crate) mod binding;
pub mod decision;
pub(crate) mod fabric;
pub mod filter;
pub mod health;
pub mod lag;
pub mod late;
pub(crate) mod modules;
pub mod nic;
mod nic_conditions;
pub mod order;
pub(crate) mod publication;
pub mod rails;
pub mod sharing;
pub mod slices;
pub mod vendor_driver;
pub mod versions;
pub mod virtual_functions;
pub mod withheld;
