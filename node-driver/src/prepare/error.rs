//! Why a claim is not prepared.

use crate::facts::pod_resources::PodResourcesError;
use crate::facts::reads::MachineError;
use crate::kernel::attach::AttachError;
use crate::model::checkpoint::{CheckpointError, Unrestored};
use crate::model::claim::ClaimRef;
use crate::prepare::claim::ClaimError;
use crate::prepare::effects::EffectError;
use crate::prepare::late::LateError;
use crate::prepare::plan::{PlanError, Refusal};
use crate::prepare::pools::PoolError;
use node_files::durable::FileError;
use std::time::Duration;

/// Longest wait for the API server; well below the kubelet's limit of 45 s.
pub(crate) const API_PATIENCE: Duration = Duration::from_secs(15);

/// A claim could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The claim was deleted.
    #[error("claim `{claim}` does not exist")]
    Absent {
        /// The claim.
        claim: ClaimRef,
    },
    /// The server refused.
    #[error("failed to get claim `{claim}`: the server says: {message}")]
    Refused {
        /// The claim.
        claim: ClaimRef,
        /// The server's message.
        message: String,
    },
    /// The server did not answer.
    #[error("failed to get claim `{claim}`")]
    Get {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The server did not answer in time.
    #[error("failed to get claim `{claim}`: no answer within {} s", API_PATIENCE.as_secs())]
    NoAnswer {
        /// The claim.
        claim: ClaimRef,
    },
    /// The claim is not for this node now.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The claim's requests cannot be fulfilled.
    #[error("claim `{claim}`")]
    Plan {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<PlanError>,
    },
    /// The kubelet did not say which GPUs the pod has.
    #[error("claim `{claim}`")]
    PodResources {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<PodResourcesError>,
    },
    /// No NIC was chosen for a place.
    #[error("claim `{claim}`")]
    Late {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<LateError>,
    },
    /// The claims' addresses could not be read or written.
    #[error("claim `{claim}`: failed to find an address in its range")]
    Addresses {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The same, within the time limit.
    #[error(
        "claim `{claim}`: the API server took too long to list the used addresses; the driver tries again"
    )]
    AddressesLate {
        /// The claim.
        claim: ClaimRef,
    },
    /// The range has no free address.
    #[error(
        "claim `{claim}`: no address of `interface.addressRange` is free; widen the range, or delete unused claims"
    )]
    RangeFull {
        /// The claim.
        claim: ClaimRef,
    },
    /// Other claims were faster each time.
    #[error(
        "claim `{claim}`: other claims took each address that it chose; the driver tries again"
    )]
    RangeContended {
        /// The claim.
        claim: ClaimRef,
    },
    /// A NicPool gave it no address.
    #[error("claim `{claim}`")]
    Pool {
        /// The claim.
        claim: ClaimRef,
        /// The cause.
        source: Box<PoolError>,
    },
    /// The RDMA device of an allocated device does not answer.
    #[error(
        "claim `{claim}`: device `{device}` cannot be prepared, because its RDMA device `{rdma}` does not answer the kernel; check the kernel's log, reset the device"
    )]
    Unresponsive {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: String,
        /// Its RDMA device.
        rdma: String,
    },
    /// A virtual function of the claim still has settings of an earlier claim.
    #[error(
        "claim `{claim}`: virtual function `{}` still has settings of claim `{}`, because its physical function `{}` is in a pod; wait until that pod ends",
        .unrestored.device, .unrestored.claim, .unrestored.function.physical
    )]
    Unrestored {
        /// The claim.
        claim: ClaimRef,
        /// The virtual function and its settings.
        unrestored: Box<Unrestored>,
    },
    /// The kernel names and numbers of a device have changed since it was prepared.
    #[error(
        "claim `{claim}`: the kernel numbered its RDMA devices again: {}; the container gets the new numbers at the next try",
        .changes.join("; ")
    )]
    Renumbered {
        /// The claim.
        claim: ClaimRef,
        /// What changed.
        changes: Vec<String>,
    },
    /// A prepared device has no RDMA device any more.
    #[error(
        "claim `{claim}`: {} has no RDMA device now; load its kernel driver, or check whether the NIC has failed",
        .devices.iter().map(|device| format!("device `{device}`")).collect::<Vec<_>>().join(", ")
    )]
    Lost {
        /// The claim.
        claim: ClaimRef,
        /// The devices.
        devices: Vec<String>,
    },
    /// A vendor's driver is being loaded.
    #[error(
        "claim `{claim}`: version {version} of the NICs' driver is being loaded on this node; the driver tries again"
    )]
    VendorDriver {
        /// Which claim.
        claim: ClaimRef,
        /// Version of the vendor's driver.
        version: String,
    },
    /// A hook attaches the claim at this moment.
    #[error(
        "claim `{claim}` cannot be undone while a container of its pod is starting; the driver tries again"
    )]
    Starting {
        /// Which claim.
        claim: ClaimRef,
    },
    /// The machine could not be read.
    #[error(transparent)]
    Read(#[from] MachineError),
    /// An interface could not be read.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An effect failed. What was done is undone now, or at the next start.
    #[error(transparent)]
    Effect(#[from] EffectError),
    /// The checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file of the plugin could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was dropped because the driver stops.
    #[error("the driver stops")]
    Stopped,
}

impl PrepareError {
    /// The claim that holds a device of this one, if that is why it was not prepared.
    pub fn holder(&self) -> Option<&ClaimRef> {
        let Self::Plan { source, .. } = self else { return None };
        match &**source {
            PlanError::Device { why: Refusal::Held { holder }, .. } => Some(holder),
            _ => None,
        }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Checkpoint(error) => error.is_full(),
            Self::File(error) | Self::Effect(EffectError::File(error)) => error.is_full(),
            _ => false,
        }
    }
}
