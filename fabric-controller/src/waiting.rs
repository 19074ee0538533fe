//! Why pods wait, for people and programs.

use cluster_model::names::annotation;
use std::fmt;

/// Why the gated pods of a group wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingReason {
    /// Pods of the group are missing.
    NotWhole {
        /// How many exist.
        have: usize,
        /// How many there will be.
        want: usize,
    },
    /// Pods of the group have gates of other controllers, which may still decide where
    /// they run.
    OtherGates(Vec<String>),
    /// No node has a fabric.
    NoFabrics,
    /// No fabric has room for all pods.
    NoRoom {
        /// The fabric with the most room now.
        best: String,
        /// How many of the pods fit there now.
        fit: usize,
        /// How many must fit.
        need: usize,
        /// How many fit on the largest fabric when nothing is in use.
        at_most: usize,
        /// A fabric that could grow for the group.
        can_grow: Option<String>,
    },
    /// A fabric has room, but is reserved for a group that has waited for a long time.
    KeptFree {
        /// The fabric with room.
        fabric: String,
    },
    /// A fabric has room, but the scheduler is placing other kinds of pods there now.
    Settling {
        /// The fabric with room.
        fabric: String,
    },
    /// The other pods of the group are on a fabric that has no room for these: they were created
    /// again, or the room is gone since their gates were removed.
    Full {
        /// Its fabric.
        fabric: String,
        /// How many of the waiting pods fit there now.
        fit: usize,
        /// How many wait.
        need: usize,
        /// A fabric with room for the whole group: another one, or its own in other domains.
        elsewhere: Option<String>,
    },
    /// The group was released to a fabric that an autoscaler grows, and not all nodes are there.
    Growing {
        /// Its fabric.
        fabric: String,
        /// How many of the waiting pods fit there now.
        fit: usize,
        /// How many wait.
        need: usize,
    },
    /// The other pods of the group are being evicted, so that all move together.
    Moving,
    /// The claims of the pods cannot be read, or the object that says how many there are.
    Unknown(String),
    /// The CEL expressions of the pods' claims take too long to evaluate.
    Expensive,
    /// The time of this round ended before the group; it comes first in the next one.
    NotReached,
    /// The API server would drop the topology constraint of a `PodGroup`.
    ConstraintDropped,
    /// Admission prepared the pods for the other placement method.
    OtherPlacement,
}

impl WaitingReason {
    /// A single word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotWhole { .. } => "GroupNotWhole",
            Self::OtherGates(_) => "OtherGates",
            Self::NoFabrics => "NoFabrics",
            Self::NoRoom { fit, at_most, need, .. } if at_most < need && fit < need => "TooLarge",
            Self::NoRoom { .. } => "NoRoom",
            Self::KeptFree { .. } => "KeptFree",
            Self::Settling { .. } => "Settling",
            Self::Full { .. } => "FabricFull",
            Self::Growing { .. } => "Growing",
            Self::Moving => "Moving",
            Self::Unknown(_) => "Unknown",
            Self::Expensive => "Expensive",
            Self::NotReached => "NotReached",
            Self::ConstraintDropped => "ConstraintDropped",
            Self::OtherPlacement => "OtherPlacement",
        }
    }
}

impl fmt::Display for WaitingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWhole { have, want } => write!(
                f,
                "{have} of the {want} pods of the group exist; a fabric is chosen when all do"
            ),
            Self::OtherGates(gates) => {
                write!(
                    f,
                    "pods of the group have other scheduling gates: {}; a fabric is chosen when \
                     these are removed",
                    gates.join(", ")
                )
            }
            Self::NoFabrics => f.write_str(
                "no node has the label topology.dranet.io/fabric: no driver publishes a fabric, \
                 and nobody has labelled the nodes; see the log of node-driver, or label the nodes",
            ),
            Self::NoRoom { fit: 0, at_most: 0, .. } => f.write_str(
                "no node that has a fabric can take a pod of the group, even with nothing in use: \
                 see the pods' node selector and tolerations, and whether the nodes have the \
                 devices, CPU and memory that a pod asks for",
            ),
            Self::NoRoom { best, fit, need, at_most, can_grow } if at_most < need => {
                let fits = if *fit == 1 { "fits" } else { "fit" };
                write!(
                    f,
                    "no fabric is large enough: the group needs {need} places and an empty fabric \
                     has at most {at_most}; now {fit} {fits} on {best}; make the group smaller, or \
                     ask less for each pod"
                )?;
                or_grow(f, can_grow.as_deref())
            }
            Self::NoRoom { best, fit, need, can_grow, .. } => {
                write!(
                    f,
                    "no fabric has room: {fit} of {need} pods fit on {best}, which has the most room"
                )?;
                or_grow(f, can_grow.as_deref())
            }
            Self::KeptFree { fabric } => {
                write!(
                    f,
                    "there is room on {fabric}, and it is reserved for a group that has waited longer"
                )
            }
            Self::Settling { fabric } => write!(
                f,
                "there is room on {fabric}; the scheduler is placing other pods there right now"
            ),
            Self::Full { fabric, fit, need, elsewhere } => {
                write!(f, "the group is on {fabric}, where {fit} of {need} waiting pods fit now")?;
                match elsewhere {
                    Some(own) if own == fabric => f.write_str(
                        "; other domains of the fabric have room for the whole group: delete all its \
                         pods to move it there",
                    ),
                    Some(other) => write!(
                        f,
                        "; another fabric, {other}, has room for the whole group: delete all its \
                         pods to move it there"
                    ),
                    None => Ok(()),
                }
            }
            Self::Growing { fabric, fit, need } => write!(
                f,
                "the group waits for new nodes of {fabric}, where {fit} of {need} waiting pods fit \
                 now: see the events of the autoscaler"
            ),
            Self::Moving => f.write_str("the group moves to where it has room, all pods together"),
            Self::Unknown(why) => write!(f, "what the pods need is not known: {why}"),
            Self::Expensive => f.write_str(
                "the CEL expressions of the pods' claims take too long to evaluate here, so no \
                 fabric is chosen; use simpler selectors in the claims of the pods",
            ),
            Self::NotReached => f.write_str(
                "the expressions of other groups' claims took the time of this round; the group is \
                 tried again in a few seconds",
            ),
            Self::ConstraintDropped => f.write_str(
                "kube-apiserver drops the topology constraint of PodGroups, so kube-scheduler would \
                 not keep the group on one fabric: turn on the feature gate \
                 TopologyAwareWorkloadScheduling of kube-apiserver and kube-scheduler, or start \
                 admission and fabric-controller without --pod-groups",
            ),
            Self::OtherPlacement => f.write_str(
                "admission and fabric-controller differ, or differed when the pods were created, in \
                 --pod-groups: start both with it or both without it, and create the pods again",
            ),
        }
    }
}

/// Names a fabric that an autoscaler could grow, and the annotation that lets it.
fn or_grow(f: &mut fmt::Formatter<'_>, fabric: Option<&str>) -> fmt::Result {
    match fabric {
        Some(fabric) => write!(
            f,
            "; or let an autoscaler add nodes to {fabric}, by the annotation {}",
            annotation::FABRIC_WAIT
        ),
        None => Ok(()),
    }
}
