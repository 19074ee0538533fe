//! Flags.

use crate::protocol::step::{Keep, Limits};
use crate::{Rules, Selection};
use fabric_controller::size_paths::SizePath;
use k8s_openapi::jiff::SignedDuration;
use serve::controller::ControllerArgs;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Evicts pods of lower priority for pods that wait for devices, which kube-scheduler does not do.
///
/// Keeps the devices by DeviceTaintRules until the pods are bound. Evicts nobody if the pods could not
/// get what they ask for.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// What every controller has.
    #[command(flatten)]
    pub controller: ControllerArgs,
    /// File with drivers of accelerators and NICs that are not built in
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// How many pods an object of a kind that is not built in has, as for fabric-controller. Repeat for
    /// several kinds
    #[arg(long, value_name = "RULE")]
    pub size_paths: Vec<SizePath>,
    /// Who may preempt, and whom.
    #[command(flatten)]
    pub rules: RuleArgs,
    /// How it is done.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Who may preempt, and whom.
#[derive(clap::Args, Clone, Debug)]
pub struct RuleArgs {
    /// Namespaces whose pods may preempt; without it, all. Repeat for several, or separate by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub preemptor_namespaces: Vec<String>,
    /// PriorityClasses whose pods may preempt; without it, all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub preemptor_classes: Vec<String>,
    /// Namespaces whose pods may be evicted; without it, all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub victim_namespaces: Vec<String>,
    /// PriorityClasses whose pods may be evicted; without it, all, and pods without a class
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub victim_classes: Vec<String>,
}

impl From<RuleArgs> for Rules {
    fn from(args: RuleArgs) -> Self {
        let RuleArgs { preemptor_namespaces, preemptor_classes, victim_namespaces, victim_classes } =
            args;
        Self {
            preemptors: selection(preemptor_namespaces, preemptor_classes),
            victims: selection(victim_namespaces, victim_classes),
            // The Eviction API refuses such evictions.
            may_violate_budgets: false,
            may_move: false,
        }
    }
}

fn selection(namespaces: Vec<String>, priority_classes: Vec<String>) -> Selection {
    Selection { namespaces: selected(namespaces), priority_classes: selected(priority_classes) }
}

fn selected(names: Vec<String>) -> Option<BTreeSet<String>> {
    (!names.is_empty()).then(|| names.into_iter().collect())
}

/// How preemption is done.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LimitArgs {
    /// Evict nobody; only send events that say who would be evicted for whom
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum number of pods that are evicted per minute. A job with more pods is evicted alone
    #[arg(long, value_name = "NUMBER", default_value = "60")]
    pub evictions_per_minute: NonZeroU32,
    /// Maximum number of pods per hour that let themselves be moved (dranet.io/movable) and are evicted
    /// so that others fit, for which nobody of lower priority leaves; 0 moves none
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub moves_per_hour: u32,
    /// How long devices are kept for the pods: until they are written into the claims, or only until
    /// they are free
    #[arg(long, value_enum, default_value_t)]
    pub keep: Keep,
    /// Seconds that the DeviceTaintRules exist before the first pod is evicted, so that kube-scheduler
    /// has seen them
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub settle_seconds: u32,
    /// Seconds for which PodDisruptionBudgets may refuse evictions until the preemption is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub refused_seconds: u32,
    /// Seconds for which devices may stay in use after all evicted pods are gone, or pods that have
    /// their devices without a node, until the preemption is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub bound_seconds: u32,
}

/// The longest time from the start of a preemption until devices are free that are in use although the
/// evicted pods are gone. Pods end in their grace period, which may be long.
const FREED_WITHIN: SignedDuration = SignedDuration::from_hours(2);

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs { keep, settle_seconds, refused_seconds, bound_seconds, .. } = args;
        Self {
            keep,
            settle: SignedDuration::from_secs(settle_seconds.into()),
            refused_within: SignedDuration::from_secs(refused_seconds.into()),
            freed_within: FREED_WITHIN,
            bound_within: SignedDuration::from_secs(bound_seconds.into()),
        }
    }
}
