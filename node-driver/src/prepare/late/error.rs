//! Why no NIC is chosen for a claim. Messages are for the claim's author.

use topology_graph::Level;

/// No NIC was chosen.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LateError {
    /// Publication has not read the NICs yet.
    #[error(
        "its NICs are chosen when the pod starts, but the driver has not read this node's NICs since it started; the driver tries again"
    )]
    NotRead,
    /// This node does not bind NICs late, or not any more.
    #[error(
        "its NICs are chosen when the pod starts, but this node binds NICs by name now; delete the pod, so that it gets another claim"
    )]
    Named,
    /// A claim of several pods has no GPUs of its own.
    #[error(
        "its NICs are chosen for the GPUs of one pod, but the claim is reserved for {found} pods; use a ResourceClaimTemplate"
    )]
    Pods {
        /// The number of pods.
        found: usize,
    },
    /// Requests of one claim ask for different things.
    #[error("`lateBinding` differs between its requests; it must be the same for all of them")]
    Different,
    /// The pod has another number of GPUs than expected.
    #[error(
        "it is for a pod with {expected} GPUs, and the kubelet says that device plugins gave {found} to the pod's containers; GPUs of init containers do not count"
    )]
    Gpus {
        /// The number in the claim's configuration.
        expected: u32,
        /// The number that the kubelet says.
        found: usize,
    },
    /// A device is no GPU of this machine, as far as the driver can see.
    #[error(
        "the pod has device `{id}` of {resource}, which is no GPU that the driver knows on this machine"
    )]
    UnknownGpu {
        /// The extended resource.
        resource: String,
        /// The ID of the device.
        id: String,
    },
    /// A part of a GPU.
    #[error(
        "the pod has device `{id}` of {resource}, a part of a GPU, and the driver cannot see of which one; use whole GPUs, or a DRA driver"
    )]
    PartOfGpu {
        /// The extended resource.
        resource: String,
        /// The ID of the device.
        id: String,
    },
    /// There are too few free NICs.
    #[error("it needs {wanted} NICs, and {free} are free and usable; the driver tries again")]
    TooFew {
        /// The number that it needs.
        wanted: usize,
        /// The number that is free.
        free: usize,
    },
    /// No free NICs are as near as required.
    #[error(
        "it needs {wanted} NICs near the pod's GPUs ({}) at level {within}, evenly for all of them, and the free NICs are not: {}; the driver tries again",
        gpus.join(", "),
        free.join(", ")
    )]
    TooFar {
        /// The number of NICs.
        wanted: usize,
        /// How near they must be.
        within: Level,
        /// The GPUs' PCI addresses.
        gpus: Vec<String>,
        /// The free NICs, each with its shortest distance.
        free: Vec<String>,
    },
}
