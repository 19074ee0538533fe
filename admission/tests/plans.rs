//! Plans on whole machines: written as files, read and published by the production code,
//! with GPUs as their drivers publish them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[cfg(feature = "server")]
#[path = "plans/again.rs"]
mod again;
#[path = "plans/beside.rs"]
mod beside;
#[path = "plans/brute_force.rs"]
mod brute_force;
#[cfg(feature = "server")]
#[path = "plans/cache.rs"]
mod cache;
#[path = "plans/checks.rs"]
mod checks;
#[path = "plans/cluster.rs"]
mod cluster;
#[path = "plans/derived.rs"]
mod derived;
#[path = "plans/empty.rs"]
mod empty;
#[path = "plans/fleets.rs"]
mod fleets;
#[path = "plans/future.rs"]
mod future;
#[path = "plans/in_part.rs"]
mod in_part;
#[path = "plans/laws.rs"]
mod laws;
#[path = "plans/least_far.rs"]
mod least_far;
#[path = "plans/lists.rs"]
mod lists;
#[path = "plans/matrix.rs"]
mod matrix;
#[path = "plans/plugin.rs"]
mod plugin;
#[path = "plans/remembered.rs"]
mod remembered;
#[path = "plans/roles.rs"]
mod roles;
#[path = "plans/several_nics.rs"]
mod several_nics;
#[path = "plans/shared_gpus.rs"]
mod shared_gpus;
#[path = "plans/sharing.rs"]
mod sharing;
#[path = "plans/unknown.rs"]
mod unknown;
#[path = "plans/verdicts.rs"]
mod verdicts;
#[path = "plans/without_rdma.rs"]
mod without_rdma;
