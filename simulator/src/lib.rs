//! Replays traces of jobs on a simulated cluster and compares scheduling policies.
//!
//! Facts are a trace ([`trace`]) and machines as their drivers publish them ([`machine`]). From
//! them come the claims, written by admission and allocated by dra-allocator ([`claims`]), the
//! nodes ([`cluster`]) and the jobs ([`workload`]). [`replay`] runs them under a [`policy`],
//! one of [`policies`], which score nodes as kube-scheduler does. [`measures`], [`report`] and [`plot`] say what came
//! of it. The library opens the files that it is given and temporary ones; it knows no clock, no
//! network, and equal seeds give equal results.

pub mod args;
pub mod claims;
pub mod cluster;
pub mod communication;
pub mod compare;
pub mod machine;
pub mod measures;
pub mod plot;
pub mod policies;
pub mod policy;
pub mod replay;
pub mod report;
pub mod trace;
pub mod workload;
