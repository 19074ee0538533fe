//! Admission: a pod's annotation becomes a concrete ResourceClaimTemplate.
//!
//! [`intent`] reads what the pod requests, [`plan`] chooses a claim that the cluster can serve,
//! [`rewrite`] and [`template`] create the changed pod and the template; [`admit`] combines them.
//! All of these are pure functions, which kubectl-dranet calls too. Only `server` does IO.

pub mod admit;
pub mod api_limits;
mod claim;
mod compute_domain;
mod cost;
mod cpus;
pub mod demand;
pub mod denial;
pub mod fabric;
mod gpu_sharing;
pub mod intent;
mod join;
#[cfg(feature = "server")]
mod leader;
pub mod lint;
pub mod nearness;
#[cfg(feature = "server")]
mod needed_domain;
mod nic_class;
mod nic_pool;
mod numa_beside;
mod nvmes;
pub mod pin;
pub mod plan;
mod pod_check;
mod ports;
pub mod quota;
mod rail;
pub mod reapplied;
pub mod rewrite;
mod selector;
#[cfg(feature = "server")]
pub mod server;
pub mod sharing;
mod supply;
pub mod template;
#[cfg(feature = "server")]
mod waiting_pods;
mod wording;
