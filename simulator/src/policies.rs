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
pub enum PolicyKind {
    /// kube-scheduler with its defaults.
    KubeScheduler,
    /// kube-scheduler with `scoringStrategy: MostAllocated`.
    MostAllocated,
    /// The score of "Beware of Fragmentation" (USENIX ATC '23).
    Fgd,
    /// kube-scheduler with its defaults and the extender.
    SchedulerExt,
    /// The same on nodes whose NVLink domains the extender does not know.
    WithoutDomains,
    /// The node with the fewest free devices on which the pod fits, as
    /// openshift-psap/dra-rail-admission-webhook 19262fc chooses it.
    RailWebhook,
}

impl PolicyKind {
    /// The policies that schedule one claim, `scheduler-ext` last.
    pub const ALL: [Self; 4] =
        [Self::KubeScheduler, Self::MostAllocated, Self::Fgd, Self::SchedulerExt];

    /// The policies that are compared on a cluster, with or without NVLink domains.
    pub fn compared(has_domains: bool) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(has_domains.then_some(Self::WithoutDomains))
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::MostAllocated => "MostAllocated",
            Self::Fgd => "FGD",
            Self::SchedulerExt => "scheduler-ext",
            Self::WithoutDomains => "scheduler-ext, domains unknown",
            Self::RailWebhook => "rail webhook",
        }
    }
}
