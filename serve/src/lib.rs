//! What every server of this workspace needs, and nothing of its domain: TLS that
//! follows its files, a certificate authority of one's own, leadership, health and
//! metrics endpoints.

pub mod args;
pub mod authority;
pub mod http;
pub mod lease;
pub mod operations;
pub mod readiness;
pub mod tls;
