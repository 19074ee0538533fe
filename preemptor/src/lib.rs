//! Preemption for claims: kube-scheduler evicts no pod for devices, so this crate decides which pods
//! of lower priority leave so that a pod, or all pods of a job, get devices.
//!
//! Facts are the view of the cluster and its room (`cluster_model`), the groups of fabric-controller,
//! [`Pods`] and [`Budgets`]. [`decide()`] is a pure function of these: a [`Preemption`] says who leaves
//! and which devices who gets, as the allocator computed them; [`NoPreemption`] says why nobody leaves.
//! `protocol` defines what is written, and in which order. Only `server` and `controller` do IO.

pub mod budgets;
mod chosen;
#[cfg(feature = "server")]
mod controller;
pub mod decide;
pub mod decision;
pub mod defrag;
mod groups;
pub mod holders;
pub mod kept;
#[cfg(feature = "server")]
mod metrics;
mod moves;
mod place_score;
pub mod pods;
#[cfg(feature = "server")]
mod protocol;
mod scene;
mod search;
#[cfg(feature = "server")]
pub mod server;
mod singles;
mod units;

pub use budgets::Budgets;
pub use decide::{decide, decide_on};
pub use decision::{
    Cluster, Decision, NoPreemption, PlacedClaim, Placement, PodId, Preemption, Refusal, Rules,
    Selection, Victim, VictimPod,
};
pub use pods::Pods;
#[cfg(feature = "server")]
pub use protocol::step::Keep;
