//! Why a pod does not fit on a node. Texts are made from this, and never read back.

use crate::view::ObjectKey;
use dra_allocator::NoFit;
use std::fmt;

/// The first reason for which kube-scheduler would not place a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The pod's nodeSelector or node affinity excludes the node.
    NotSelected,
    /// Another fabric is chosen for the pod's group.
    OtherFabric {
        /// The chosen fabric.
        chosen: Box<str>,
    },
    /// The node is not ready, and the pod does not tolerate that.
    NotReady {
        /// Since when; empty if that is unknown.
        since: Box<str>,
    },
    /// An operator has cordoned the node.
    Cordoned,
    /// The node has a taint that the pod does not tolerate.
    Tainted {
        /// The key of the taint.
        key: Box<str>,
    },
    /// The node offers no room for any pod.
    TakesNoPods,
    /// The node runs its maximum number of pods.
    Full,
    /// The node has too little of a resource.
    TooLittle {
        /// The resource.
        resource: Box<str>,
        /// Whether the node has too little of it also when it is empty.
        also_when_empty: bool,
    },
    /// Another pod has a port of the node that the pod needs.
    PortInUse {
        /// The port.
        number: i32,
    },
    /// The node cannot have a volume of the pod.
    Volume {
        /// The claim of the volume.
        claim: Box<str>,
        /// Why.
        problem: VolumeProblem,
    },
    /// Pods that the pod's anti-affinity selects are in the same domain.
    Apart {
        /// The node label whose values are the domains.
        domains: Box<str>,
    },
    /// Pods in the same domain have an anti-affinity that selects this pod.
    KeptClear {
        /// The node label whose values are the domains.
        domains: Box<str>,
    },
    /// No pod that the pod's affinity selects is in the same domain.
    NotNear {
        /// The node label whose values are the domains.
        domains: Box<str>,
    },
    /// The domain of the node has too many pods for a spread constraint of the pod, or the node is in
    /// none.
    Spread {
        /// The node label whose values are the domains.
        domains: Box<str>,
    },
    /// A claim of the pod has devices of other nodes already.
    ClaimElsewhere {
        /// The claim.
        claim: ObjectKey,
        /// Its pools; those of devices of one node have the node's name.
        pools: Vec<String>,
    },
    /// The allocator finds no devices for the claims.
    NoFit(NoFit),
    /// The allocator fails, so that the scheduler places the pod on no node.
    Failed(String),
    /// The claims would fit; the allocator fails on another node.
    FailsElsewhere {
        /// The other node.
        node: Box<str>,
    },
    /// The expressions of the claims take too much work here; the result is unknown.
    Expensive,
    /// The search takes too many steps here; the result is unknown.
    TooManySteps {
        /// The most steps that are tried.
        most: u64,
    },
}

/// The plugin of kube-scheduler that gives a reason; those that no pod's end changes are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// `NodeResourcesFit`.
    Resources,
    /// `NodePorts`.
    Ports,
    /// `VolumeRestrictions`, `NodeVolumeLimits` and the other plugins for volumes.
    Volumes,
    /// `InterPodAffinity`.
    Affinity,
    /// `PodTopologySpread`.
    Spread,
    /// All others.
    Other,
}

/// Why a node cannot have a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeProblem {
    /// The claim does not exist.
    NoClaim,
    /// The volume of the claim does not exist.
    NoVolume,
    /// The claim has no volume yet, and its class does not wait for a pod.
    Unbound,
    /// The volume is in another zone or on another node.
    Elsewhere,
    /// No volume of the class is free that the node can have, and the class makes none.
    NoneFree,
    /// The class makes no volumes for the node.
    NotMadeHere,
    /// The volume of the claim is gone.
    Lost,
    /// The claim is being deleted.
    BeingDeleted,
    /// The claim has the name of one that is created for the pod, and was not.
    OfOthers,
    /// Another pod has the volume, which only one may have.
    InUse,
    /// The node has as many volumes of the driver as it can attach.
    TooMany,
    /// The node lacks the driver of the volume.
    NoDriver,
    /// Too little storage is left for the volume.
    NoStorage,
}

impl WhyNot {
    /// Whether the answer is unknown, rather than no.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Expensive | Self::TooManySteps { .. })
    }

    /// Whether the pod may fit if pods of lower priority end.
    pub fn may_give_way(&self) -> bool {
        match self {
            Self::TooLittle { also_when_empty, .. } => !also_when_empty,
            Self::Full
            | Self::PortInUse { .. }
            | Self::Apart { .. }
            | Self::KeptClear { .. }
            | Self::Spread { .. } => true,
            Self::Volume { problem, .. } => {
                matches!(problem, VolumeProblem::InUse | VolumeProblem::TooMany)
            }
            _ => false,
        }
    }

    /// The plugin that gives this reason.
    pub(super) fn filter(&self) -> Filter {
        match self {
            Self::TakesNoPods | Self::Full | Self::TooLittle { .. } => Filter::Resources,
            Self::PortInUse { .. } => Filter::Ports,
            Self::Volume { .. } => Filter::Volumes,
            Self::Apart { .. } | Self::KeptClear { .. } | Self::NotNear { .. } => Filter::Affinity,
            Self::Spread { .. } => Filter::Spread,
            _ => Filter::Other,
        }
    }

    /// Whether the devices of the node decide, and not something else of the node.
    pub fn is_of_devices(&self) -> bool {
        matches!(self, Self::NoFit(_) | Self::Failed(_) | Self::FailsElsewhere { .. })
            || self.is_unknown()
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected => f.write_str("excluded by the pod's nodeSelector or node affinity"),
            Self::OtherFabric { chosen } => {
                write!(f, "not on fabric {chosen}, which is chosen for the group")
            }
            Self::NotReady { since } if since.is_empty() => f.write_str("is not ready"),
            Self::NotReady { since } => write!(f, "is not ready since {since}"),
            Self::Cordoned => f.write_str("is cordoned; `kubectl uncordon` lets pods on it again"),
            Self::Tainted { key } => {
                write!(f, "has the taint {key}, which the pod does not tolerate")
            }
            Self::TakesNoPods => {
                f.write_str("has no room for pods: its allocatable `pods` is 0 or missing")
            }
            Self::Full => f.write_str("runs its maximum number of pods"),
            Self::TooLittle { resource, also_when_empty: true } => {
                write!(f, "has too little `{resource}`, also when it is empty")
            }
            Self::TooLittle { resource, also_when_empty: false } => {
                write!(f, "has too little `{resource}` free")
            }
            Self::PortInUse { number } => {
                write!(f, "another pod there has host port {number}, which the pod needs")
            }
            Self::Volume { claim, problem } => {
                write!(f, "its PersistentVolumeClaim {claim} {problem}")
            }
            Self::Apart { domains } => write!(
                f,
                "its {domains} has pods that the pod must not be near (pod anti-affinity)"
            ),
            Self::KeptClear { domains } => write!(
                f,
                "its {domains} has pods that must not be near this pod (their pod anti-affinity)"
            ),
            Self::NotNear { domains } => {
                write!(f, "its {domains} has no pod that the pod must be near (pod affinity)")
            }
            Self::Spread { domains } => write!(
                f,
                "its {domains} has too many such pods compared with others (topology spread \
                 constraint)"
            ),
            Self::ClaimElsewhere { claim, pools } => {
                let nodes = if pools.len() == 1 { "node" } else { "nodes" };
                let pools = pools.join(", ");
                write!(f, "its claim {} has devices of {nodes} {pools} already", claim.name)
            }
            Self::NoFit(reason) => write!(f, "{reason}"),
            Self::Failed(error) => f.write_str(error),
            Self::FailsElsewhere { node } => write!(
                f,
                "would fit, but its claims fail on node {node}, which stops scheduling on all nodes"
            ),
            Self::Expensive => {
                f.write_str("the CEL expressions of the claims take too long to evaluate here")
            }
            Self::TooManySteps { most } => write!(f, "over {most} search steps"),
        }
    }
}

impl fmt::Display for VolumeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoClaim => "does not exist",
            Self::NoVolume => "is bound to a volume that does not exist",
            Self::Unbound => "has no volume yet",
            Self::Elsewhere => "has a volume in another zone or on another node",
            Self::NoneFree => "finds no free volume that the node can have",
            Self::NotMadeHere => "has a StorageClass that makes no volumes here",
            Self::Lost => "has lost its volume",
            Self::BeingDeleted => "is being deleted",
            Self::OfOthers => "has the name of the pod's own claim, and belongs to another object",
            Self::InUse => {
                "is in use by another pod, and only one pod may use it (ReadWriteOncePod)"
            }
            Self::TooMany => {
                "cannot be attached: the node has as many volumes of its driver as it can attach"
            }
            Self::NoDriver => "needs a CSI driver that the node does not have",
            Self::NoStorage => "asks for more storage than is left here",
        })
    }
}
