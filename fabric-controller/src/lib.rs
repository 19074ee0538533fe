//! The fabric controller: places all pods of a job on one fabric.
//!
//! A *fabric* is a network on which NICs reach each other, and a label of nodes. A
//! *group* is the pods of one job that must share a fabric. Required pod affinity cannot
//! guarantee that: the first pod may pick a fabric that has no room for the last one. So
//! admission creates such pods with a scheduling gate, and this controller chooses a
//! fabric for the whole group.
//!
//! Facts are pods and nodes ([`group_pods`], `cluster_model::room`) and the objects that define how
//! many pods a job has ([`size`]). From these it derives the groups ([`group`]) and the room on each
//! fabric ([`capacity`]).
//! [`decide()`] is a pure function of these; [`release`] defines what is written, and
//! when it is safe. Only `server` does IO.
//!
//! With `--pod-groups`, kube-scheduler chooses instead: admission names a `PodGroup` in
//! the pods, and this controller creates it with a topology constraint ([`pod_groups`]). Pods that
//! have a `PodGroup` of their workload have a gate also then.
//!
//! **The pods hold all state.** A gated pod has the chosen fabric as an annotation, a
//! released one as its node affinity. A gate is removed only after listing all pods of
//! the group, if that list is newer than the annotations and contradicts none of them,
//! and only with the resource version of that list: see [`release`].

pub mod capacity;
mod chosen;
pub mod conflicts;
#[cfg(feature = "server")]
mod controller;
pub mod decide;
mod foreign_levels;
pub mod gang;
pub mod group;
pub mod group_pods;
pub mod job_name;
pub mod level_labels;
mod level_sources;
pub mod machine_labels;
pub mod nic_pools;
pub mod node_label;
pub mod pod_groups;
pub mod preview;
pub mod release;
#[cfg(feature = "server")]
pub mod server;
pub mod size;
pub mod size_paths;
#[cfg(feature = "server")]
pub mod sizes;
pub mod waiting;

pub use capacity::{ClusterCapacity, FabricCapacity};
pub use decide::{Action, Decision, FullFabricPolicy, PlacementPolicy, decide};
pub use gang::Gang;
pub use group::{Group, Member, PodStage};
pub use waiting::WaitingReason;
