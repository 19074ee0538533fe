//! Serves claims: prepares them when the kubelet or the container runtime asks, and tells their pods and
//! statuses of it.

mod pod_events;
pub mod preparer;
