//! Kubernetes' structured-parameters device allocator and CEL device environment, as a pure
//! library.
//!
//! kube-scheduler allocates devices to claims while it filters nodes, by an exhaustive first-fit
//! search. This crate runs the same search, device by device and step by step. It therefore
//! predicts which devices a pod's claims get on a node ([`allocate()`]), how many steps the search
//! takes, and why it fails.
//!
//! [`Inventory`] indexes the objects of a cluster; a watch feeds it. [`Claim`] holds the requests,
//! [`AllocatedState`] the devices in use, and [`Settings`] the version of Kubernetes that is
//! followed.
//!
//! The crate does no IO, reads no clock and is not async. It expects objects that an API server has
//! validated. It refuses what it does not understand; it never guesses.
//!
//! Go sources are named relative to `k8s.io/dynamic-resource-allocation@v0.37.1` unless they start
//! otherwise.

pub mod allocate;
mod allocation;
mod budget;
pub mod cel;
pub mod claim;
pub mod device;
pub mod explain;
mod hash;
pub mod inventory;
mod likeness;
pub mod name;
pub mod node;
pub mod quantity;
pub mod reasons;
pub mod settings;
pub mod slice;
pub mod state;
pub mod survey;
mod wire;

pub use allocate::{
    AllocateError, Attempt, ClaimAllocation, DeviceResult, Limits, NoFit, Outcome, allocate,
};
pub use budget::Budget;
pub use claim::{Claim, Class};
pub use device::{AttributeValue, Device};
pub use explain::{Explanation, explain};
pub use inventory::{GatherError, Inventory, InventoryError, PoolProblem};
pub use name::{ClaimName, DeviceId, PoolId, QualifiedName};
pub use node::{Node, NodeSelector};
pub use quantity::Quantity;
pub use settings::{FeatureGates, MinorVersion, Settings, Variant};
pub use slice::Slice;
pub use state::AllocatedState;
pub use survey::{Survey, survey};
pub use wire::WireError;
