//! Kubernetes' objects into this crate's values, and results back.
//!
//! The only module that names `k8s_openapi` types besides the index. Objects come from an API
//! server that has validated them; what cannot be held is refused with the place it stands at.

mod amounts;
mod claim;
mod error;
mod interner;
mod node;
mod result;
mod slice;

pub(crate) use claim::{HeldDevice, allocated_devices, claim_name, class};
pub use error::WireError;
pub(crate) use interner::Interner;
pub(crate) use node::node;
pub(crate) use slice::slice;
