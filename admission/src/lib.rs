//! Admission: a pod's annotation becomes a concrete ResourceClaimTemplate.
//!
//! [`intent`] reads what the pod requests, [`plan`] chooses a claim that the cluster can serve,
//! [`rewrite`] and [`template`] create the changed pod and the template; [`admit`] combines them.
//! All of these are pure functions, which kubectl-dranet calls too. Only `server` does IO.

pub mod admit;
#[cfg(feature = "server")]
mod admitted;
mod alignment;
pub mod api_limits;
mod claim;
#[cfg(test)]
#[path = "../tests/plans/cluster.rs"]
mod cluster;
mod compute_domain;
mod cost;
pub mod demand;
pub mod denial;
mod dns;
pub mod fabric;
mod fleet;
mod gpu_sharing;
mod group;
pub mod intent;
mod join;
#[cfg(feature = "server")]
mod leader;
pub mod lint;
pub mod misplaced;
pub mod nearness;
#[cfg(feature = "server")]
mod needed_domain;
mod nic_class;
pub mod pin;
pub mod plan;
mod pod_check;
#[cfg(feature = "server")]
mod pod_event;
mod ports;
mod promise;
mod published;
pub mod quota;
pub mod reapplied;
pub mod rewrite;
mod selector;
#[cfg(feature = "server")]
pub mod server;
mod supply;
pub mod template;
mod trials;
#[cfg(feature = "server")]
mod waiting_pods;
pub mod wishes;
mod wording;
