//! Tests on the real control plane.
//!
//! This library starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and our own
//! binaries on free ports of the loopback interface, and stops exactly what it started. Nothing is
//! mocked: Kubernetes itself responds.
//!
//! A suite is a test binary without the standard harness: see [`suite`].

pub mod allocation;
pub mod audit;
pub mod autoscaler;
pub mod binaries;
pub mod certificates;
pub mod chart;
pub mod control_plane;
pub mod documents;
pub mod eventually;
pub mod figures;
pub mod gb300;
pub mod generated;
pub mod guest;
pub mod hostile;
pub mod images;
pub mod imds;
pub mod installation;
pub mod karpenter;
pub mod kueue;
pub mod lines;
pub mod machine;
pub mod manifest;
pub mod metrics;
pub mod nic_claims;
pub mod node;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod random;
pub mod random_case;
pub mod readiness;
pub mod scope;
pub mod seeded_rng;
pub mod setting;
pub mod simulated_node;
pub mod suite;
pub mod warnings;

pub use control_plane::{ControlPlane, Extender, Options, SchedulerConfig};
pub use eventually::{Check, eventually};
pub use process::{Process, Program};
pub use scope::{Scope, with_last_scope, with_scope};
pub use seeded_rng::SeededRng;
pub use setting::setting;
