//! The generated messages and services of `k8s.io/kubelet/pkg/apis/podresources/v1`. `tests/generated.rs`
//! regenerates them.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::absolute_paths,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    reason = "generated code"
)]

/// The package.
#[rustfmt::skip]
#[path = "generated/v1.rs"]
pub mod v1;
