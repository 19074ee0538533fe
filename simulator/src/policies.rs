//! The policies that are compared.

mod extender;
mod fgd;
mod kube;
mod rail;

pub use extender::SchedulerExt;
pub use fgd::Fgd;
pub use kube::{KubeScheduler, Strategy};
pub use rail::RailWebhook;

/// One of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// kube-scheduler with its defaults.
    KubeScheduler,
    /// kube-scheduler with `scoringStrategy: MostAllocated`.
    MostAllocated,
    /// The score of "Beware of Fragmentation" (USENIX ATC '23).
    Fgd,
    /// kube-scheduler with its defaults and the extender.
    SchedulerExt,
    /// The node with the fewest free devices on which the pod fits, as
    /// openshift-psap/dra-rail-admission-webhook 19262fc chooses it.
    RailWebhook,
}

impl Kind {
    /// The policies that schedule one claim, `scheduler-ext` last.
    pub const ALL: [Self; 4] =
        [Self::KubeScheduler, Self::MostAllocated, Self::Fgd, Self::SchedulerExt];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::MostAllocated => "MostAllocated",
            Self::Fgd => "FGD",
            Self::SchedulerExt => "scheduler-ext",
            Self::RailWebhook => "rail webhook",
        }
    }
}
