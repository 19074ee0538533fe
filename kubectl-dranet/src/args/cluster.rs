//! Flags of the commands about the cluster.

use super::form::{FailOn, Form, ListForm, MachinesForm};
use super::pods::PolicyArgs;
use super::source::{AdmissionArgs, SourceArgs};
use crate::selector::Selector;
use crate::shape::PodShape;
use cluster_model::names::ADMISSION_NAMESPACE;
use std::path::PathBuf;

/// Flags of `capacity`.
#[derive(clap::Args, Clone, Debug)]
pub struct CapacityArgs {
    /// Shape of the pods to count, such as `1gpu:2nic` or, with a level, `2gpu:2nic:switch`; may be
    /// repeated. Defaults to 1, 2, 4 and 8 GPUs with as many NICs
    #[arg(long = "shape", value_name = "SHAPE")]
    pub shapes: Vec<PodShape>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Flags of `lint`.
#[derive(clap::Args, Clone, Debug)]
pub struct LintArgs {
    /// File with ResourceClaims, ResourceClaimTemplates, pods, or workloads with pod templates; `-`
    /// reads standard input. By default it checks the claims, templates and annotated pods of the
    /// namespace
    #[arg(long = "filename", short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Check the claims, templates and annotated pods of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["file", "namespace"])]
    pub all_namespaces: bool,
    /// Only objects with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "file")]
    pub selector: Option<Selector>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Maximum number of search steps that a claim may cost the scheduler on one node
    #[arg(long, value_name = "NUMBER", default_value_t = admission::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// Minimum severity that sets exit code 3
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    pub fail_on: FailOn,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Flags of `doctor`.
#[derive(clap::Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// DeviceClass of the NICs; defaults to the setting of the cluster's admission, otherwise dranet.net
    #[arg(long, value_name = "NAME")]
    pub nic_class: Option<String>,
    /// Namespace of the project's components
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
    /// Make only the checks that tell before the installation whether the cluster is ready for it
    #[arg(id = "is_before", long = "pre", conflicts_with = "is_asked")]
    pub is_before: bool,
    /// Check again for up to this many seconds, until nothing sets exit code 3
    #[arg(long, value_name = "SECONDS", default_value_t = 0, conflicts_with = "snapshot")]
    pub wait: u16,
    /// A pod that is really created.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Namespace of the pod of --try; defaults to that of the kubeconfig's context
    #[arg(long, short, value_name = "NAMESPACE", requires = "is_asked")]
    pub namespace: Option<String>,
    /// Minimum severity that sets exit code 3
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    pub fail_on: FailOn,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// The pod of `doctor --try`.
#[derive(clap::Args, Clone, Debug)]
pub struct TrialArgs {
    /// Create a pod with one GPU and one aligned NIC, check what it gets, and delete it
    #[arg(id = "is_asked", long = "try", conflicts_with = "snapshot")]
    pub is_asked: bool,
    /// Image of the pod of --try: any that runs without arguments
    #[arg(
        long = "try-image",
        value_name = "IMAGE",
        default_value = "registry.k8s.io/pause:3.10",
        requires = "is_asked"
    )]
    pub image: String,
    /// Seconds that the pod of --try may take to start
    #[arg(
        long = "try-timeout",
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "is_asked"
    )]
    pub timeout: u16,
}

/// Flags of `top`.
#[derive(clap::Args, Clone, Debug)]
pub struct TopArgs {
    /// Nodes to show; by default all
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Nodes have no namespace, so this changes nothing
    #[arg(long, short = 'A', hide = true)]
    pub all_namespaces: bool,
    /// Only nodes with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Show the table once; on a terminal it is otherwise updated until Ctrl-C
    #[arg(long)]
    pub once: bool,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub interval: u16,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format; all but text and wide are written once
    #[arg(long, short, value_enum, default_value_t = ListForm::Text)]
    pub output: ListForm,
}

/// Flags of `fabric`.
#[derive(clap::Args, Clone, Debug)]
pub struct FabricArgs {
    /// Namespace of the project's components
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Flags of `pools`.
#[derive(clap::Args, Clone, Debug)]
pub struct PoolsArgs {
    /// Pools to show with their addresses; by default all pools, without addresses
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format; wide and json have the addresses
    #[arg(long, short, value_enum, default_value_t = ListForm::Text)]
    pub output: ListForm,
}

/// Flags of `machines`.
#[derive(clap::Args, Clone, Debug)]
pub struct MachinesArgs {
    /// Machine type of which to print the objects of a node that does not exist yet; by default the known
    /// machine types
    #[arg(value_name = "TYPE")]
    pub machine: Option<String>,
    /// Only machine types that are built in, without a cluster
    #[arg(long, conflicts_with_all = ["snapshot", "kubeconfig", "context"])]
    pub built_in: bool,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Namespace of admission, which remembers machine types there
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
    /// Output format; of a machine type text, yaml and json are its slices
    #[arg(long, short, value_enum, default_value_t = MachinesForm::Text)]
    pub output: MachinesForm,
}

/// Flags of `version`.
#[derive(clap::Args, Clone, Debug)]
pub struct VersionArgs {
    /// Show the version of this program only, without a cluster
    #[arg(long, conflicts_with_all = ["snapshot", "kubeconfig", "context"])]
    pub client: bool,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Namespace of the project's components
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}
