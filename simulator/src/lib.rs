//! Replays traces of jobs on a simulated cluster and compares scheduling policies.
//!
//! Inputs are a trace ([`trace`]) and machines as their drivers publish them
//! ([`machine`]). From these come the claims, written by admission and allocated by
//! dra-allocator ([`claims`]), the nodes ([`cluster`]) and the jobs ([`workload`]).
//! [`replay`] runs the jobs under a [`policy`], one of [`policies`], which score nodes as
//! kube-scheduler does. [`ways`] compares what else gives pods their devices, with [`kubelet`] for
//! device plugins. [`preemption`] lets jobs leave for others of higher priority, and [`priorities`]
//! compares by whom that is decided. [`measures`], [`report`] and [`plot`] present the results. The
//! library uses only its input files and temporary files, no clock and no network; equal
//! seeds give equal results.

pub mod args;
pub mod claims;
pub mod cluster;
pub mod communication;
pub mod compare;
pub mod decider;
pub mod kubelet;
pub mod machine;
pub mod measures;
pub mod objects;
pub mod plot;
pub mod policies;
pub mod policy;
pub mod preemption;
pub mod priorities;
pub mod replay;
pub mod report;
pub mod running;
pub mod trace;
pub mod ways;
pub mod workload;
