//! How a preemption is carried out, so that every eviction leads to a bound pod.
//!
//! 1. [`rules`]: each device that the pods get is kept by a DeviceTaintRule, which keeps new pods off
//!    and lets running ones be. The rule that is created last, the *head*, has the decision.
//! 2. The victims are evicted.
//! 3. When they have given back their devices, the allocations are written into the claims of the
//!    pods. kube-scheduler binds each pod where its claims are allocated; fabric-controller removes the
//!    gates of a group whose pods have their devices.
//! 4. When the pods are bound, the rules are removed, the head last.
//!
//! All state is in the API: a preemption has begun if its head exists. [`step`] is a function of that
//! state, so any replica can go on after any write. If the pods can no longer get what was decided,
//! the rules are removed, and nobody else is evicted.

pub(crate) mod allocation;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod step;
#[cfg(test)]
mod tests;
