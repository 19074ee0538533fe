//! Why a claim is not prepared.

use crate::kernel::attach::AttachError;
use crate::prepare::checkpoint::CheckpointError;
use crate::prepare::claim::{ClaimError, ClaimRef};
use crate::prepare::durable::FileError;
use crate::prepare::effects::EffectError;
use crate::prepare::plan::PlanError;
use crate::prepare::pools::PoolError;
use std::time::Duration;
use topology_graph::ReadError;

/// Longest wait for the API server, well below the kubelet's 45 s.
pub(super) const API_PATIENCE: Duration = Duration::from_secs(15);

/// A claim could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It was deleted.
    #[error("claim `{claim}` is not there any more")]
    Absent {
        /// Which claim.
        claim: ClaimRef,
    },
    /// The server refused.
    #[error("failed to get claim `{claim}`: the server says: {message}")]
    Refused {
        /// Which claim.
        claim: ClaimRef,
        /// Its words.
        message: String,
    },
    /// The server did not answer.
    #[error("failed to get claim `{claim}`")]
    Get {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The server did not answer in time.
    #[error("failed to get claim `{claim}`: no answer within {} s", API_PATIENCE.as_secs())]
    Late {
        /// Which claim.
        claim: ClaimRef,
    },
    /// It is not for this node now.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It cannot have what it asks for.
    #[error("claim `{claim}`")]
    Plan {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<PlanError>,
    },
    /// The claims' addresses could not be read or written.
    #[error("claim `{claim}`: failed to find an address in its range")]
    Addresses {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The same took too long.
    #[error(
        "claim `{claim}`: the API server took too long to list the used addresses; the driver tries again"
    )]
    AddressesLate {
        /// Which claim.
        claim: ClaimRef,
    },
    /// Every address of a range is another claim's.
    #[error(
        "claim `{claim}`: no address of `interface.addressRange` is free; widen the range, or delete unused claims"
    )]
    RangeFull {
        /// Which claim.
        claim: ClaimRef,
    },
    /// Others were faster each time.
    #[error(
        "claim `{claim}`: other claims took each address that it chose; the driver tries again"
    )]
    RangeContended {
        /// Which claim.
        claim: ClaimRef,
    },
    /// A pool gives it no address.
    #[error("claim `{claim}`")]
    Pool {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<PoolError>,
    },
    /// A device of the claim is stuck.
    #[error(
        "claim `{claim}`: device `{device}` cannot be prepared, because its RDMA device `{rdma}` does not answer the kernel; check the kernel's log, reset the device"
    )]
    Unresponsive {
        /// Which claim.
        claim: ClaimRef,
        /// The device.
        device: String,
        /// Its RDMA device.
        rdma: String,
    },
    /// The machine could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An interface could not be read.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An effect failed; what was done is undone, or will be at the next start.
    #[error(transparent)]
    Effect(#[from] EffectError),
    /// The checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file of the plugin's own.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was dropped: the driver stops.
    #[error("the driver stops")]
    Stopped,
}
