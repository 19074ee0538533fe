//! Annotations, `dranet.io/…`: one table, from which every list of them derives.

/// The prefix of all our annotations.
pub const DOMAIN: &str = "dranet.io/";

/// What an annotation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The user sets it on a pod to ask for something.
    Asks,
    /// The user sets it on a pod to allow something.
    Allows,
    /// A program writes it on a pod.
    WrittenOnPods,
    /// A program writes it on a template.
    WrittenOnTemplates,
}

/// An annotation of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its key.
    pub key: &'static str,
    /// What it is for.
    pub purpose: Purpose,
}

/// Defines a constant with the key of each annotation, and the table of all.
macro_rules! annotations {
    ($($purpose:ident { $($(#[$doc:meta])+ $name:ident = $key:literal;)+ })+) => {
        $($($(#[$doc])+ pub const $name: &str = $key;)+)+

        /// All of them. Admission hashes the values of those that ask in this order, and the hash
        /// is stored on pods, so entries are added, but never moved.
        pub const ALL: &[Annotation] =
            &[$($(Annotation { key: $name, purpose: Purpose::$purpose },)+)+];
    };
}

annotations! {
    Asks {
        /// CPUs on the NUMA node of the GPUs and NICs.
        ALIGNED_CPUS = "dranet.io/aligned-cpus";
        /// The number of NICs for the pod, aligned with its GPUs. This annotation makes admission act.
        ALIGNED_NICS = "dranet.io/aligned-nics";
        /// NVMe devices on the NUMA node of the GPUs and NICs.
        ALIGNED_NVMES = "dranet.io/aligned-nvmes";
        /// The alignment level: `switch`, `root-port`, `root`, `numa`, `socket`.
        ALIGNMENT = "dranet.io/alignment";
        /// The alignment policy: `required`, `preferred`.
        ALIGNMENT_POLICY = "dranet.io/alignment-policy";
        /// `auto` if the pods of the job get an IMEX channel of a `ComputeDomain` that is made for it.
        COMPUTE_DOMAIN = "dranet.io/compute-domain";
        /// Names of the containers that get the claim.
        CONTAINERS = "dranet.io/containers";
        /// The number of pods in each slice of a group; the pods of a slice share a domain.
        DOMAIN_SIZE = "dranet.io/domain-size";
        /// One InfiniBand fabric for all pods of a job.
        FABRIC = "dranet.io/fabric";
        /// The level below the fabric that the pods of a group share: `nvlink`, `block`.
        FABRIC_LEVEL = "dranet.io/fabric-level";
        /// The number of pods in the group on one fabric.
        FABRIC_SIZE = "dranet.io/fabric-size";
        /// The seconds after which a group without room goes to a fabric that an autoscaler can grow.
        FABRIC_WAIT = "dranet.io/fabric-wait";
        /// The number of GPUs for the pod, if no container's limits name them.
        GPUS = "dranet.io/gpus";
        /// The DeviceClass of the GPUs.
        GPU_CLASS = "dranet.io/gpu-class";
        /// The pod's share of the bandwidth of each NIC that it shares.
        NIC_BANDWIDTH = "dranet.io/nic-bandwidth";
        /// The DeviceClass of the NICs.
        NIC_CLASS = "dranet.io/nic-class";
        /// The driver's network configuration as JSON.
        NIC_CONFIG = "dranet.io/nic-config";
        /// The `NicPool` that the NICs' interfaces get their addresses from.
        NIC_POOL = "dranet.io/nic-pool";
        /// What the pod's NICs are for: `compute`, `storage`.
        NIC_ROLE = "dranet.io/nic-role";
        /// Whether the NICs are the pod's alone or shared with other pods: `exclusive`, `shared`.
        NIC_SHARING = "dranet.io/nic-sharing";
        /// The pairing: `each` GPU has its own NICs, or all GPUs share them as a `group`.
        PAIRING = "dranet.io/pairing";
        /// The same rail for all pods of a job.
        RAIL = "dranet.io/rail";
        /// What happens while no machine is known that the pod can run on: `admit`, `deny`.
        UNKNOWN_SHAPE = "dranet.io/unknown-shape";
    }
    Allows {
        /// `true` if the pod may be evicted to make room by moving it.
        MOVABLE = "dranet.io/movable";
    }
    WrittenOnPods {
        /// Written by the fabric controller on a gated pod: the fabric of its group.
        FABRIC_CHOSEN = "dranet.io/fabric-chosen";
        /// Written by the fabric controller on the pods of a job that moves to another fabric; all of
        /// them move.
        FABRIC_MOVES = "dranet.io/fabric-moves";
        /// Written by the webhook: the limits that the claim replaces, by container.
        LIMITS = "dranet.io/limits";
        /// Written by the webhook: the decision and its reason, in one line.
        PLAN = "dranet.io/plan";
        /// Written by the webhook: a hash of the annotations that the claim was planned from. It
        /// reveals copies of the pod with other annotations.
        REQUEST_HASH = "dranet.io/request-hash";
    }
    WrittenOnTemplates {
        /// Written on a template whose claim is pinned to cells: those cells.
        PINNED = "dranet.io/pinned";
        /// Written on an unused template: the time since when it is unused.
        UNUSED_SINCE = "dranet.io/unused-since";
    }
}

/// The keys of the annotations with which a pod asks for something.
pub fn asking() -> impl Iterator<Item = &'static str> {
    with_purpose(Purpose::Asks)
}

/// The keys of the annotations that pods have.
pub fn on_pods() -> impl Iterator<Item = &'static str> {
    asking().chain(with_purpose(Purpose::Allows)).chain(with_purpose(Purpose::WrittenOnPods))
}

/// The keys of the annotations for this purpose.
pub fn with_purpose(purpose: Purpose) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |annotation| annotation.purpose == purpose).map(|it| it.key)
}
