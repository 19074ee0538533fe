//! The generated messages, one module per package. Nothing here is written by hand;
//! `tests/generated.rs` regenerates it.

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

/// `github.com/containerd/nri/pkg/api`.
#[rustfmt::skip]
#[path = "generated/nri.pkg.api.v1alpha1.rs"]
pub mod nri;
/// `github.com/containerd/ttrpc`.
#[rustfmt::skip]
#[path = "generated/ttrpc.rs"]
pub mod ttrpc;
