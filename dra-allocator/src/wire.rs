//! Converts Kubernetes' objects into this crate's values, and results back.
//!
//! Apart from the index, only this module uses `k8s_openapi` types. Objects come from an API server
//! that has validated them; what cannot be converted is refused with its location.

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
pub(crate) use slice::{slice, taint};
