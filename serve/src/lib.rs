//! What every server of this workspace needs, and nothing of its domain: a
//! Kubernetes client from flags, TLS that follows its files, health and metrics
//! endpoints, logging, and an orderly end.

pub mod args;
pub mod authority;
pub mod chain;
pub mod client;
pub mod http;
pub mod lease;
pub mod logging;
pub mod memory;
pub mod operations;
pub mod process;
pub mod readiness;
pub mod tls;
