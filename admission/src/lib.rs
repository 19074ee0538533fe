//! Admission: a pod's annotation becomes a concrete ResourceClaimTemplate.
//!
//! [`intent`] reads what the pod asks for, [`plan`] chooses the claim from what
//! the cluster has, [`rewrite`] and [`template`] say what changes; [`admit`]
//! puts them together. All of these are plain functions of values, and
//! kubectl-dranet calls them too. Only `server` does IO.

pub mod admit;
mod claim;
mod cost;
pub mod demand;
pub mod denial;
pub mod intent;
mod join;
pub mod nearness;
pub mod plan;
mod pod_check;
pub mod rewrite;
mod selector;
#[cfg(feature = "server")]
pub mod server;
mod supply;
pub mod template;
