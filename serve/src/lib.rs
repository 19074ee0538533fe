//! Common parts of all servers in this workspace: TLS from files that may change, a certificate
//! authority, leader election, health and metrics endpoints. It knows nothing about NICs or claims.

mod answers;
pub mod args;
pub mod authority;
pub mod bodies;
mod connections;
pub mod controller;
pub mod http;
pub mod lease;
pub mod operations;
pub mod progress;
pub mod readiness;
pub mod tls;
pub mod turns;
