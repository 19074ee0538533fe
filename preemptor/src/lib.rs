//! Preemption for claims: kube-scheduler evicts no pod for devices, so this crate decides which pods
//! of lower priority leave so that a pod, or all pods of a job, get devices.
//!
//! Facts are the view of the cluster and its room (`cluster_model`), the groups of fabric-controller,
//! [`Pods`] and [`Budgets`]. [`decide`] is a pure function of these: a [`Preemption`] says who leaves
//! and which devices who gets, as the allocator computed them; [`NoPreemption`] says why nobody leaves.
//! `protocol` defines what is written, and in which order. Only `server` and `controller` do IO.

pub mod budgets;
#[cfg(feature = "server")]
mod controller;
pub mod decision;
#[cfg(feature = "server")]
mod metrics;
pub mod pods;
#[cfg(feature = "server")]
mod protocol;
#[cfg(feature = "server")]
pub mod server;

pub use budgets::Budgets;
pub use decision::{
    Cluster, Decision, NoPreemption, PlacedClaim, Placement, PodId, Preemption, Refusal, Rules,
    Selection, Victim, VictimPod, decide,
};
pub use pods::Pods;
#[cfg(feature = "server")]
pub use protocol::step::Keep;
